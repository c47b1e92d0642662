"""How to call each torch op and layer once, for `gradlint.facts.probe`. Read its docstring for the notation.

Only what the probe's guesses (one tensor, two, a tensor and a number, a tensor and a dim) do not reach, or
would reach in a less common form, has a line here.
"""

from __future__ import annotations

_OPS = """
addbmm: m, b, b2
baddbmm: b, b2, b3
addmm: m, m2, m3
addmv: v, m, v2
addr: m, v, v2
addcmul: m, m2, m3
addcdiv: m, m2, m3
bmm: b, b2
mv: m, v
dot: v, v2
vdot: v, v2
inner: v, v2
outer: v, v2
ger: v, v2
cross: r(4, 3), r(4, 3), -1
linalg.cross: r(4, 3), r(4, 3)
linalg.vecdot: m, m2
tensordot: m, m2, 1
torch.einsum: 'ij,jk->ik', m, m2 | one: 'ij->ji', m | list: 'ij,jk->ik', [m, m2]
chain_matmul: m, m2, m3
linalg.multi_dot: [m, m2, m3]
lerp: m, m2, 0.3 | weight: m, m2, m3
dist: m, m2
cdist: m, m2
pdist: m
renorm: m, 2, 0, 0.5
pow: m, m2 | number: m, 2.0 | square: m, 2 | exponent: 2.0, m
method.pow: m, m2 | number: m, 2.0 | square: m, 2
float_power: m, m2 | number: m, 2.0
polygamma: 1, m
method.polygamma: m, 1
special.polygamma: 1, m
mvlgamma: m + 2, 2
special.multigammaln: m + 2, 2
torch.where: mask, m, m2 | number: mask, m, 0.0 | condition: mask
method.where: m, mask, m2 | number: m, mask, 0.0
masked_fill: m, mask, 0.0 | value: m, mask, s
masked_scatter: m, mask, m2
masked_select: m, mask
gather: m, 1, im
scatter: m, 1, im, m2 | number: m, 1, im, 2.0
scatter_add: m, 1, im, m2
scatter_reduce: m, 1, im, m2, 'sum'
    | prod: m, 1, im, m2, 'prod'
    | mean: m, 1, im, m2, 'mean'
    | amax: m, 1, im, m2, 'amax'
    | amin: m, 1, im, m2, 'amin'
index_select: m, 1, iv
index_add: m, 1, iv, m2
index_copy: m, 1, iv, m2
index_fill: m, 1, iv[:2], 0.5 | value: m, 1, iv[:2], s
index_put: m, (iv,), v
index_reduce: m, 1, iv, m2, 'prod' | mean: m, 1, iv, m2, 'mean' | amax: m, 1, iv, m2, 'amax'
take: m, iv
put: m, iv, v
take_along_dim: m, im, 1
select: m, 0, 1
narrow: m, 0, 1, 2
narrow_copy: m, 0, 1, 2
unfold: v, 0, 2, 1
functional.unfold: r(1, 3, 6, 6), 3
functional.fold: r(1, 12, 9), (4, 4), 2
unflatten: m, 1, (2, 2)
view: m, (2, 8) | dtype: m, torch.int32
reshape: m, (2, 8)
reshape_as: m, r(2, 8)
view_as: m, r(2, 8)
flatten: b | dim: b, 1
ravel: m
expand: r(1, 4), (3, 4)
expand_as: r(1, 4), m
broadcast_to: r(1, 4), (3, 4)
sum_to_size: m, (1, 4)
repeat: m, 2, 2
tile: m, (2, 2)
repeat_interleave: m, 2, 1
permute: m, (1, 0)
method.permute: m, 1, 0
linalg.diagonal: m
transpose: m, 0, 1
swapaxes: m, 0, 1
swapdims: m, 0, 1
movedim: m, 0, 1
moveaxis: m, 0, 1
squeeze: r(1, 4) | dim: r(1, 4), 0
unsqueeze: m, 0
unsqueeze_: m, 0
roll: m, 1, 0
rot90: m
flip: m, (0,)
cat: [m, m2], 0
concat: [m, m2], 0
concatenate: [m, m2], 0
stack: [m, m2], 0
hstack: [m, m2]
vstack: [m, m2]
dstack: [m, m2]
row_stack: [m, m2]
column_stack: [m, m2]
block_diag: m, m2
cartesian_prod: v, v2
combinations: v
meshgrid: v, v2
broadcast_tensors: v, m
atleast_1d: m
atleast_2d: m
atleast_3d: b
split: m, 2 | sizes: m, [2, 2]
functional.split: m, 2
split_with_sizes: m, [2, 2]
unsafe_split: m, 2
unsafe_split_with_sizes: m, [2, 2]
chunk: m, 2
unsafe_chunk: m, 2
tensor_split: m, 2
hsplit: m, 2
vsplit: m, 2
dsplit: b, 2
unbind: m
topk: m, 2
kthvalue: m, 2
sort: m
argsort: m
quantile: m, 0.5 | dim: m, 0.5, 1
nanquantile: m, 0.5 | dim: m, 0.5, 1
histc: m
histogram: m, 4
bincount: iv
bucketize: m, v
searchsorted: v, m
isin: m, v
norm: m | dim: m, 2, 1 | one: m, 1
linalg.norm: m | dim: m, None, 1
linalg.vector_norm: m | one: m, 1
linalg.matrix_norm: m | nuc: m, 'nuc'
linalg.matrix_power: m, 2
linalg.cond: m
linalg.solve: spd, m
linalg.solve_ex: spd, m
linalg.solve_triangular: spd.tril(), m, upper=False
linalg.lstsq: m, m2
linalg.lu_solve: spd, iv.int() * 0 + 1, m
linalg.ldl_solve: spd, iv.int() * 0 + 1, m
linalg.householder_product: m, v
linalg.tensorinv: r(4, 2, 2), ind=1
linalg.tensorsolve: r(2, 2, 4), r(2, 2)
linalg.cholesky: spd
linalg.cholesky_ex: spd
linalg.eigh: spd
linalg.eigvalsh: spd
linalg.inv: spd
linalg.vander: v
linalg.matrix_rank: m
cholesky: spd
cholesky_inverse: spd.tril()
cholesky_solve: m, spd.tril()
triangular_solve: m, spd
lu_solve: m, spd, iv.int() * 0 + 1
lu_unpack: spd, iv.int() * 0 + 1
lu: spd
orgqr: m, v
ormqr: m, v, m2
logdet: spd
inverse: spd
matrix_power: m, 2
clamp: m, 0.2, 0.6 | tensor: m, m2, m3 | min: m, 0.2
clip: m, 0.2, 0.6 | tensor: m, m2, m3 | min: m, 0.2
clamp_min: m, 0.2 | tensor: m, m2
clamp_max: m, 0.6 | tensor: m, m2
heaviside: m, m2
complex: m, m2
polar: m, m2
view_as_complex: r(4, 2)
view_as_real: cm
imag: cm
real: cm | real: m
conj: cm | real: m
adjoint: m
method.H: m
method.mH: m
conj_physical: cm | real: m
resolve_conj: m
resolve_neg: m
copysign: m, m2 | number: m, 1.0
ldexp: m, m2
torch.normal: m, m2 | number: m, 1.0 | factory: 0.0, 1.0, (4,)
bernoulli: m
multinomial: m, 2
torch.binomial: k(4, 4, 4).float(), m
cumulative_trapezoid: m
trapezoid: m
trapz: m
gradient: m
diff: m
cov: m
corrcoef: m
vander: v
diag: m | vector: v
diagflat: v
diag_embed: m
diagonal: m
diagonal_scatter: m, v
select_scatter: m, v, 0, 1
slice_scatter: m, r(2, 4), 0, 0, 2
as_strided: m, (2, 2), (1, 1)
as_strided_scatter: m, r(2, 2), (2, 2), (1, 2)
fill_diagonal_: m, 0.0
tril: m
triu: m
nan_to_num: m
copy_: m, m2
fill: m, 0.5 | value: m, s
zero_: m
set_: m, m2
resize_: m, (2, 8)
resize_as_: m, r(2, 8)
requires_grad_: m | false: m, False
retain_grad: m
clone: m
contiguous: m
to: m, torch.float32 | other: m, m2
type: m, torch.float32
type_as: m, m2
index: m, (iv,)
__getitem__: m, 0
    | slice: m, slice(0, 2)
    | none: m, None
    | tuple: m, (slice(None), 0)
    | tensor: m, iv
    | mask: m, mask
    | list: m, [0, 1]
__setitem__: m, 0, 1.0
    | value: m, 0, v
    | slice: m, slice(0, 2), r(2, 4)
    | tensor: m, iv, m2
    | mask: m, mask, 0.0
    | maskvalue: m, mask, s
__rsub__: m, 2.0 | other: m, m2
__rdiv__: m, 2.0
__rtruediv__: m, 2.0
__rpow__: m, 2.0
__rmul__: m, 2.0 | other: m, m2
__radd__: m, 2.0 | other: m, m2
__rmatmul__: m, m2
__rfloordiv__: m, 2.0
__rmod__: m, 2.0
__mod__: m, 2.0 | other: m, m2
__floordiv__: m, 2.0 | other: m, m2
__contains__: m, 0.5
__iter__: m
__reversed__: m
__len__: m
__bool__: s
__int__: s
__float__: s
__complex__: s
__format__: s, ''
__array__: m
__and__: im, im2
__or__: im, im2
__xor__: im, im2
__invert__: im
__deepcopy__: m, {}
item: s
tolist: m
numpy: m
size: m | dim: m, 1
stride: m
dim: m
stft: r(64), 16, return_complex=True, window=r(16)
istft: torch.complex(r(9, 17), r(9, 17)), 16, window=r(16)
new_full: m, (2, 2), 0.5
new_tensor: m, m2 | list: m, [1.0]
new_empty: m, (2, 2)
new_zeros: m, (2, 2)
new_ones: m, (2, 2)
new_empty_strided: m, (2, 2), (2, 1)
new: m, 2, 2
is_same_size: m, m2
is_set_to: m, m2
sparse_mask: m, m2.to_sparse()
unique: m | inverse: m, return_inverse=True | counts: m, return_inverse=True, return_counts=True
unique_consecutive: m
nonzero: m | tuple: m, as_tuple=True
nonzero_static: m, size=4
count_nonzero: m
to_padded_tensor: m, 0.0
random_: m
geometric_: m, 0.5
log_normal_: m
module_load: m, m2
map_: m, m2, (lambda a, b: a)
apply_: m, (lambda a: a)
hash_tensor: m
torch.zeros: (2, 2)
torch.ones: (2, 2)
torch.empty: (2, 2)
torch.rand: (2, 2)
torch.randn: (2, 2)
torch.full: (2, 2), 0.5
torch.full_like: m, 0.5
torch.randint: 4, (2, 2)
torch.randint_like: m, 4
torch.randperm: 4
torch.arange: 4
torch.range: 0, 4
torch.eye: 4
torch.linspace: 0, 1, 4 | tensor: s, s2, 4
torch.logspace: 0, 1, 4
torch.empty_strided: (2, 2), (2, 1)
torch.empty_permuted: (2, 2), (0, 1)
torch.scalar_tensor: 1.0
torch.tensor: m | factory: [1.0]
torch.as_tensor: m | dtype: m, dtype=torch.float64 | factory: [1.0]
torch.asarray: m | dtype: m, dtype=torch.float64 | factory: [1.0]
torch.from_numpy: m.numpy()
torch.frombuffer: bytearray(16), dtype=torch.float32
torch.from_dlpack: m
torch.tril_indices: 3, 3
torch.triu_indices: 3, 3
torch.bartlett_window: 4
torch.blackman_window: 4
torch.hamming_window: 4
torch.hann_window: 4
torch.kaiser_window: 4
torch.sparse_coo_tensor: k(4, 2, 3), r(3), (4, 4)
torch.fft.fftfreq: 4
torch.fft.rfftfreq: 4
fft.fftfreq: 4
fft.rfftfreq: 4
torch.is_grad_enabled:
torch.rsub: m, m2
torch.conv1d: r(2, 3, 8), r(4, 3, 3), v
torch.conv2d: r(2, 3, 8, 8), r(4, 3, 3, 3), v
torch.conv3d: r(2, 3, 5, 5, 5), r(4, 3, 3, 3, 3), v
torch.convolution: r(2, 3, 8, 8), r(4, 3, 3, 3), v, [1, 1], [0, 0], [1, 1], False, [0, 0], 1
torch.conv_tbc: r(6, 2, 3), r(3, 3, 4), v
torch.conv_transpose1d: r(2, 3, 8), r(3, 4, 3), v
torch.conv_transpose2d: r(2, 3, 8, 8), r(3, 4, 3, 3), v
torch.conv_transpose3d: r(2, 3, 5, 5, 5), r(3, 4, 3, 3, 3), v
conv1d: r(2, 3, 8), r(4, 3, 3), v
conv2d: r(2, 3, 8, 8), r(4, 3, 3, 3), v
conv3d: r(2, 3, 5, 5, 5), r(4, 3, 3, 3, 3), v
conv_tbc: r(6, 2, 3), r(3, 3, 4), v
conv_transpose1d: r(2, 3, 8), r(3, 4, 3), v
conv_transpose2d: r(2, 3, 8, 8), r(3, 4, 3, 3), v
conv_transpose3d: r(2, 3, 5, 5, 5), r(3, 4, 3, 3, 3), v
linear: m, m2, v
bilinear: m, m2, r(3, 4, 4), r(3)
embedding: iv, m
torch.embedding: m, iv
functional.embedding: iv, m | max_norm: iv, m, None, 0.5
functional.embedding_bag: k(4, 2, 3), m
functional.one_hot: iv, 4
max_pool1d: r(2, 3, 8), 2
functional.max_pool1d: r(2, 3, 8), 2 | indices: r(2, 3, 8), 2, return_indices=True
max_pool2d: r(2, 3, 8, 8), 2
functional.max_pool2d: r(2, 3, 8, 8), 2 | indices: r(2, 3, 8, 8), 2, return_indices=True
max_pool3d: r(2, 3, 6, 6, 6), 2
functional.max_pool3d: r(2, 3, 6, 6, 6), 2 | indices: r(2, 3, 6, 6, 6), 2, return_indices=True
max_pool1d_with_indices: r(2, 3, 8), 2
max_pool2d_with_indices: r(2, 3, 8, 8), 2
max_pool3d_with_indices: r(2, 3, 6, 6, 6), 2
avg_pool1d: r(2, 3, 8), 2
avg_pool2d: r(2, 3, 8, 8), 2
avg_pool3d: r(2, 3, 6, 6, 6), 2
lp_pool1d: r(2, 3, 8), 2, 2
lp_pool2d: r(2, 3, 8, 8), 2, 2
lp_pool3d: r(2, 3, 6, 6, 6), 2, 2
adaptive_avg_pool1d: r(2, 3, 8), 2
adaptive_avg_pool2d: r(2, 3, 8, 8), 2
adaptive_avg_pool3d: r(2, 3, 6, 6, 6), 2
adaptive_max_pool1d: r(2, 3, 8), 2
functional.adaptive_max_pool1d: r(2, 3, 8), 2 | indices: r(2, 3, 8), 2, return_indices=True
adaptive_max_pool2d: r(2, 3, 8, 8), 2
functional.adaptive_max_pool2d: r(2, 3, 8, 8), 2 | indices: r(2, 3, 8, 8), 2, return_indices=True
adaptive_max_pool3d: r(2, 3, 6, 6, 6), 2
functional.adaptive_max_pool3d: r(2, 3, 6, 6, 6), 2 | indices: r(2, 3, 6, 6, 6), 2, return_indices=True
adaptive_max_pool1d_with_indices: r(2, 3, 8), 2
adaptive_max_pool2d_with_indices: r(2, 3, 8, 8), 2
adaptive_max_pool3d_with_indices: r(2, 3, 6, 6, 6), 2
fractional_max_pool2d: r(2, 3, 8, 8), 2, (4, 4)
fractional_max_pool2d_with_indices: r(2, 3, 8, 8), 2, (4, 4)
fractional_max_pool3d: r(2, 3, 6, 6, 6), 2, (3, 3, 3)
fractional_max_pool3d_with_indices: r(2, 3, 6, 6, 6), 2, (3, 3, 3)
max_unpool1d: r(1, 1, 4), torch.tensor([[[0, 2, 4, 6]]]), 2
max_unpool2d: r(1, 1, 2, 2), torch.tensor([[[[0, 2], [8, 10]]]]), 2
max_unpool3d: r(1, 1, 1, 1, 1), torch.tensor([[[[[0]]]]]), 2
functional.batch_norm: r(2, 4, 8), v, v2, v3, v4, training=True | eval: r(2, 4, 8), v, v2, v3, v4
torch.batch_norm: r(2, 4, 8), v, v2, v3, v4, True, 0.1, 1e-5, False
    | eval: r(2, 4, 8), v, v2, v3, v4, False, 0.1, 1e-5, False
functional.instance_norm: r(2, 4, 8), v, v2, v3, v4
torch.instance_norm: r(2, 4, 8), v, v2, v3, v4, True, 0.1, 1e-5, False
layer_norm: m, (4,), v, v2
rms_norm: m, (4,), v
functional.group_norm: r(2, 4, 8), 2, v, v2
torch.group_norm: r(2, 4, 8), 2, v, v2
functional.local_response_norm: r(2, 4, 8), 2
functional.normalize: m
cosine_similarity: m, m2
pairwise_distance: m, m2
functional.dropout: m, 0.5 | eval: m, 0.5, False | zero: m, 0.0
functional.alpha_dropout: m, 0.5, True | eval: m, 0.5, False
functional.feature_alpha_dropout: r(2, 4, 8), 0.5, True | eval: r(2, 4, 8), 0.5, False
functional.dropout1d: r(2, 4, 8), 0.5 | eval: r(2, 4, 8), 0.5, False
functional.dropout2d: r(2, 4, 8, 8), 0.5 | eval: r(2, 4, 8, 8), 0.5, False
functional.dropout3d: r(2, 4, 4, 4, 4), 0.5 | eval: r(2, 4, 4, 4, 4), 0.5, False
torch.dropout: m, 0.5, True | eval: m, 0.5, False
torch.alpha_dropout: m, 0.5, True | eval: m, 0.5, False
torch.feature_dropout: r(2, 4, 8), 0.5, True | eval: r(2, 4, 8), 0.5, False
torch.feature_alpha_dropout: r(2, 4, 8), 0.5, True | eval: r(2, 4, 8), 0.5, False
functional.rrelu: m, training=True | eval: m
functional.gumbel_softmax: m | hard: m, hard=True
softmax: m, -1
log_softmax: m, -1
functional.softmax: m, -1 | dtype: m, -1, dtype=torch.float64
functional.log_softmax: m, -1 | dtype: m, -1, dtype=torch.float64
functional.softmin: m, -1
special.softmax: m, -1
special.log_softmax: m, -1
logsumexp: m, -1
functional.prelu: m, v
torch.prelu: m, v
method.prelu: m, v
functional.threshold: m, 0.5, 0.1
torch.threshold: m, 0.5, 0.1
functional.glu: m
functional.pad: m, (1, 1)
    | reflect: r(1, 1, 4, 4), (1, 1), 'reflect'
    | replicate: r(1, 1, 4, 4), (1, 1), 'replicate'
    | circular: r(1, 1, 4, 4), (1, 1), 'circular'
    | nothing: m, (0, 0)
torch.constant_pad_nd: m, (1, 1)
functional.interpolate: r(1, 3, 4, 4), scale_factor=2
    | bilinear: r(1, 3, 4, 4), scale_factor=2, mode='bilinear'
    | bicubic: r(1, 3, 4, 4), scale_factor=2, mode='bicubic'
functional.upsample: r(1, 3, 4, 4), scale_factor=2
functional.upsample_bilinear: r(1, 3, 4, 4), scale_factor=2
functional.upsample_nearest: r(1, 3, 4, 4), scale_factor=2
functional.grid_sample: r(1, 3, 4, 4), r(1, 4, 4, 2)
functional.affine_grid: r(1, 2, 3), (1, 3, 4, 4)
torch.affine_grid_generator: r(1, 2, 3), (1, 3, 4, 4), False
torch.grid_sampler: r(1, 3, 4, 4), r(1, 4, 4, 2), 0, 0, False
torch.grid_sampler_2d: r(1, 3, 4, 4), r(1, 4, 4, 2), 0, 0, False
pixel_shuffle: r(1, 4, 2, 2), 2
pixel_unshuffle: r(1, 1, 4, 4), 2
channel_shuffle: r(1, 4, 2, 2), 2
native_channel_shuffle: r(1, 4, 2, 2), 2
functional.scaled_dot_product_attention: r(1, 2, 4, 8), r(1, 2, 4, 8), r(1, 2, 4, 8)
    | mask: r(1, 2, 4, 8), r(1, 2, 4, 8), r(1, 2, 4, 8), r(4, 4)
    | causal: r(1, 2, 4, 8), r(1, 2, 4, 8), r(1, 2, 4, 8), is_causal=True
    | dropout: r(1, 2, 4, 8), r(1, 2, 4, 8), r(1, 2, 4, 8), None, 0.5
functional.multi_head_attention_forward: r(3, 2, 4), r(3, 2, 4), r(3, 2, 4), 4, 2, r(12, 4), r(12),
    None, None, False, 0.0, r(4, 4), r(4)
functional.l1_loss: m, m2
functional.mse_loss: m, m2 | weight: m, m2, weight=m3
functional.smooth_l1_loss: m, m2
functional.huber_loss: m, m2
functional.soft_margin_loss: m, sg(4, 4)
functional.kl_div: m, m2 | log_target: m, m2, log_target=True
torch.kl_div: m, m2
functional.poisson_nll_loss: m, m2
torch.poisson_nll_loss: m, m2, True, False, 1e-8, 1
functional.binary_cross_entropy: m, m2 | weight: m, m2, m3
functional.binary_cross_entropy_with_logits: m, m2 | weight: m, m2, m3 | pos_weight: m, m2, pos_weight=v
torch.binary_cross_entropy_with_logits: m, m2
functional.hinge_embedding_loss: m, sg(4, 4)
torch.hinge_embedding_loss: m, sg(4, 4)
cosine_embedding_loss: m, m2, sg(4)
margin_ranking_loss: v, v2, sg(4)
triplet_margin_loss: m, m2, m3
functional.triplet_margin_with_distance_loss: m, m2, m3
functional.multi_margin_loss: m, iv
functional.multilabel_margin_loss: m, im
functional.multilabel_soft_margin_loss: m, m2
functional.nll_loss: m, iv | weight: m, iv, v | image: r(2, 3, 4, 4), k(3, 2, 4, 4)
functional.cross_entropy: m, iv
    | weight: m, iv, v
    | probabilities: m, m2
    | smoothing: m, iv, label_smoothing=0.1
functional.linear_cross_entropy: m, m2, iv
functional.gaussian_nll_loss: m, m2, m3
functional.ctc_loss: r(6, 2, 4).log_softmax(-1), k(3, 2, 2) + 1, torch.tensor([6, 6]), torch.tensor([2, 2])
torch.ctc_loss: r(6, 2, 4).log_softmax(-1), k(3, 2, 2) + 1, torch.tensor([6, 6]), torch.tensor([2, 2])
torch.lstm: r(3, 2, 4), (r(1, 2, 4), r(1, 2, 4)), [r(16, 4), r(16, 4), r(16), r(16)],
    True, 1, 0.0, True, False, False
torch.gru: r(3, 2, 4), r(1, 2, 4), [r(12, 4), r(12, 4), r(12), r(12)], True, 1, 0.0, True, False, False
torch.rnn_tanh: r(3, 2, 4), r(1, 2, 4), [r(4, 4), r(4, 4), r(4), r(4)], True, 1, 0.0, True, False, False
torch.rnn_relu: r(3, 2, 4), r(1, 2, 4), [r(4, 4), r(4, 4), r(4), r(4)], True, 1, 0.0, True, False, False
torch.lstm_cell: m, (m2, m3), r(16, 4), r(16, 4), r(16), r(16)
torch.gru_cell: m, m2, r(12, 4), r(12, 4), r(12), r(12)
torch.rnn_tanh_cell: m, m2, r(4, 4), r(4, 4), r(4), r(4)
torch.rnn_relu_cell: m, m2, r(4, 4), r(4, 4), r(4), r(4)
torch.segment_reduce: v, 'sum', lengths=torch.tensor([2, 2])
torch.repeat_interleave: m, 2, 1
torch.native_layer_norm: m, (4,), v, v2, 1e-5
torch.native_group_norm: r(2, 4, 8), v, v2, 2, 4, 8, 2, 1e-5
torch.native_dropout: m, 0.5, True
torch.result_type: m, m2
torch.can_cast: torch.float32, torch.float64
torch.promote_types: torch.float32, torch.float64
torch.unravel_index: iv, (2, 2)
torch.norm_except_dim: m
torch.nuclear_norm: m
torch.frobenius_norm: m, (0, 1)
torch.fake_quantize_per_tensor_affine: m, 0.1, 0, 0, 255
torch.embedding_renorm_: m, iv, 1.0, 2.0
torch.lobpcg: spd, 1
hardshrink: m
softshrink: m
functional.hardtanh: m
functional.softplus: m
functional.elu: m
functional.celu: m
functional.leaky_relu: m
angle: m | complex: cm
abs: m | complex: cm
sgn: m | complex: cm
unravel_index: iv, (2, 2)
functional.grouped_mm: b, b2
torch.embedding_bag: m, k(4, 6), torch.tensor([0, 3])
torch.grid_sampler_3d: r(1, 3, 4, 4, 4), r(1, 4, 4, 4, 3), 0, 0, False
torch.native_batch_norm: r(2, 4, 8), v, v2, v3, v4, True, 0.1, 1e-5
float_power_: m.double(), m2.double()
special.chebyshev_polynomial_t: m, im | number: m, 2
special.chebyshev_polynomial_u: m, im | number: m, 2
special.chebyshev_polynomial_v: m, im | number: m, 2
special.chebyshev_polynomial_w: m, im | number: m, 2
special.hermite_polynomial_h: m, im | number: m, 2
special.hermite_polynomial_he: m, im | number: m, 2
special.laguerre_polynomial_l: m, im | number: m, 2
special.legendre_polynomial_p: m, im | number: m, 2
special.shifted_chebyshev_polynomial_t: m, im | number: m, 2
special.shifted_chebyshev_polynomial_u: m, im | number: m, 2
special.shifted_chebyshev_polynomial_v: m, im | number: m, 2
special.shifted_chebyshev_polynomial_w: m, im | number: m, 2
special.zeta: m + 1, m2 + 1
fft.hfft2: cm
fft.hfftn: cm
fft.hfft: cm
fft.irfft: cm
fft.irfft2: cm
fft.irfftn: cm
fft.ifft: cm
fft.ifft2: cm
fft.ifftn: cm
"""

NAMES = {
    "torch.einsum": "equation *tensors",
    "torch.chain_matmul": "*tensors",
    "torch.meshgrid": "*tensors",
    "torch.cartesian_prod": "*tensors",
    "torch.block_diag": "*tensors",
    "torch.broadcast_tensors": "*tensors",
    "torch.tensor": "data",
    "torch.as_tensor": "data",
    "torch.asarray": "obj",
    "torch.from_dlpack": "ext_tensor",
    "torch.from_numpy": "ndarray",
    "method.__getitem__": "self index",
    "method.__setitem__": "self index value",
    "method.__contains__": "self element",
    "method.__iter__": "self",
    "method.__len__": "self",
    "method.permute": "self *dims",
    "method.repeat": "self *repeats",
    "method.requires_grad_": "self requires_grad",
    "method.to": "self other",
    "method.type": "self dtype",
    "method.type_as": "self other",
    "method.new_tensor": "self data",
    "method.item": "self",
    "method.tolist": "self",
    "method.numpy": "self",
    "method.view": "self *shape",
    "method.reshape": "self *shape",
    "method.expand": "self *size",
    "method.index_put": "self indices values accumulate",
    "method.size": "self dim",
}
"""Parameter names where torch itself declares none that can be read (or hides them behind *args)."""

SKIP = (
    r".*(cudnn|miopen|mkldnn|quantize|quantized|q_per|q_scale|q_zero|fbgemm|autocast|deterministic|default_"
    r"|num_threads|interop|printoptions|rng_state|flush_denormal|warn_always|anomaly|inference_mode|script"
    r"|import_ir|parse_|get_file|float32_matmul|torch_function|boolean_dispatch|assert_int|unify_type"
    r"|merge_type|sym_|batch_norm_(back|elemt|gather|stats|update)|hash|vulkan|sparse_resize|hook|generator"
    r"|multiprocessing|profiler|_copy_|cuda|xpu|ipu|hpu|mtia|maia|mps|_indices_copy|values_copy).*"
    r"|Optional|backward|share_memory_|pin_memory|storage|untyped_storage|storage_type|data_ptr|const_data_ptr"
    r"|record_stream|reinforce|compile|fork|wait|save|load|seed|initial_seed|manual_seed|typename|vmap|cond"
    r"|while_loop|init_.*|compiled_with.*|from_file|get_device.*|is_storage|is_distributed|grad|grad_fn|grad_dtype"
    r"|volatile|name|names|rename_?|output_nr|resize|resize_as|resize_as_sparse_|resize_as_|as_subclass|map2_"
    r"|int_repr|is_leaf|retains_grad|requires_grad|solve|eig|symeig|lstsq|matrix_rank|Tensor|dequantize"
    r"|classproperty|slice_inverse|linalg\.LinAlgError|.*\.(common_args|factory_common_args|Tensor|has_.*)"
    r"|smm|hsmm|dsmm|spmm|saddmm|hspmm|sspaddmm|indices|values|crow_indices|ccol_indices|col_indices"
    r"|row_indices|coalesce|sparse_dim|dense_dim|is_coalesced|torch\..*|fused_moving.*|choose_qparams.*"
)
"""Names that are no op on tensors: settings, backends, serialization, quantization, sparse plumbing."""

DTYPES = {
    "bfloat16": "bfloat16",
    "bool": "bool",
    "byte": "uint8",
    "cdouble": "complex128",
    "cfloat": "complex64",
    "chalf": "complex32",
    "char": "int8",
    "double": "float64",
    "float": "float32",
    "half": "float16",
    "int": "int32",
    "long": "int64",
    "short": "int16",
}
"""Methods that convert: given their own dtype they return their operand itself."""

ALIKE = {
    ("method", "cuda"): "cpu",
    ("method", "xpu"): "cpu",
    ("layer", "SyncBatchNorm"): "BatchNorm2d",
} | {
    ("layer", f"Lazy{name}"): name
    for name in (
        "Linear",
        *(f"{kind}{d}d" for kind in ("BatchNorm", "Conv", "ConvTranspose", "InstanceNorm") for d in (1, 2, 3)),
    )
}
"""What the probe's machine cannot run, or (Lazy*) becomes another class: the nearest thing it can."""

MOVES = {"cpu", "cuda", "xpu"}
"""Methods that return a copy, but their operand itself where it is there already."""

_LAYERS = """
AdaptiveAvgPool1d: 2 | r(2, 3, 8)
AdaptiveAvgPool2d: 2 | r(2, 3, 8, 8)
AdaptiveAvgPool3d: 2 | r(2, 3, 6, 6, 6)
AdaptiveLogSoftmaxWithLoss: 4, 6, [2, 4] | m, torch.tensor([0, 2, 4, 5])
AdaptiveMaxPool1d: 2 | r(2, 3, 8)
AdaptiveMaxPool2d: 2 | r(2, 3, 8, 8)
AdaptiveMaxPool3d: 2 | r(2, 3, 6, 6, 6)
AlphaDropout: | m
Dropout(zero): 0.0 | m
AvgPool1d: 2 | r(2, 3, 8)
AvgPool2d: 2 | r(2, 3, 8, 8)
AvgPool3d: 2 | r(2, 3, 6, 6, 6)
BCELoss: | m, m2
BCEWithLogitsLoss: | m, m2
BatchNorm1d: 4 | m
BatchNorm2d: 3 | r(2, 3, 8, 8)
BatchNorm2d(stateless): 3, track_running_stats=False | r(2, 3, 8, 8)
BatchNorm3d: 3 | r(2, 3, 4, 4, 4)
Bilinear: 4, 4, 3 | m, m2
CELU: | m
CTCLoss: | r(6, 2, 4).log_softmax(-1), k(3, 2, 2) + 1, torch.tensor([6, 6]), torch.tensor([2, 2])
ChannelShuffle: 2 | r(1, 4, 2, 2)
CircularPad1d: 1 | r(1, 3, 4)
CircularPad2d: 1 | r(1, 3, 4, 4)
CircularPad3d: 1 | r(1, 3, 4, 4, 4)
ConstantPad1d: 1, 0.0 | r(1, 3, 4)
ConstantPad2d: 1, 0.0 | r(1, 3, 4, 4)
ConstantPad3d: 1, 0.0 | r(1, 3, 4, 4, 4)
Conv1d: 3, 4, 3 | r(2, 3, 8)
Conv2d: 3, 4, 3 | r(2, 3, 8, 8)
Conv3d: 3, 4, 3 | r(2, 3, 5, 5, 5)
ConvTranspose1d: 3, 4, 3 | r(2, 3, 8)
ConvTranspose2d: 3, 4, 3 | r(2, 3, 8, 8)
ConvTranspose3d: 3, 4, 3 | r(2, 3, 5, 5, 5)
CosineEmbeddingLoss: | m, m2, sg(4)
CosineSimilarity: | m, m2
CrossEntropyLoss: | m, iv
CrossEntropyLoss(weight): torch.ones(4) | m, iv
CrossEntropyLoss(probabilities): | m, m2
CrossMapLRN2d: 2 | r(2, 3, 4, 4)
Dropout: | m
Dropout1d: | r(2, 3, 8)
Dropout2d: | r(2, 3, 8, 8)
Dropout3d: | r(2, 3, 4, 4, 4)
ELU: | m
Embedding: 4, 3 | iv
Embedding(max_norm): 4, 3, None, 0.5 | iv
EmbeddingBag: 4, 3 | k(4, 2, 3)
FeatureAlphaDropout: | r(2, 3, 8)
Flatten: | b
Fold: (4, 4), 2 | r(1, 12, 9)
FractionalMaxPool2d: 2, output_size=4 | r(2, 3, 8, 8)
FractionalMaxPool3d: 2, output_size=3 | r(2, 3, 6, 6, 6)
GELU: | m
GLU: | m
GRU: 4, 4 | r(3, 2, 4), r(1, 2, 4)
GRUCell: 4, 4 | m, m2
GaussianNLLLoss: | m, m2, m3
GroupNorm: 2, 4 | r(2, 4, 8)
Hardshrink: | m
Hardsigmoid: | m
Hardswish: | m
Hardtanh: | m
HingeEmbeddingLoss: | m, sg(4, 4)
HuberLoss: | m, m2
Identity: | m
InstanceNorm1d: 3 | r(2, 3, 8)
InstanceNorm2d: 3 | r(2, 3, 8, 8)
InstanceNorm3d: 3 | r(2, 3, 4, 4, 4)
KLDivLoss: | m, m2
L1Loss: | m, m2
LPPool1d: 2, 2 | r(2, 3, 8)
LPPool2d: 2, 2 | r(2, 3, 8, 8)
LPPool3d: 2, 2 | r(2, 3, 6, 6, 6)
LSTM: 4, 4 | r(3, 2, 4), (r(1, 2, 4), r(1, 2, 4))
LSTMCell: 4, 4 | m, (m2, m3)
LayerNorm: 4 | m
LeakyReLU: | m
Linear: 4, 4 | m
LinearCrossEntropyLoss: 4, 4 | m, iv
LocalResponseNorm: 2 | r(2, 3, 8)
LogSigmoid: | m
LogSoftmax: -1 | m
MSELoss: | m, m2
MarginRankingLoss: | v, v2, sg(4)
MaxPool1d: 2 | r(2, 3, 8)
MaxPool2d: 2 | r(2, 3, 8, 8)
MaxPool2d(indices): 2, return_indices=True | r(2, 3, 8, 8)
MaxPool3d: 2 | r(2, 3, 6, 6, 6)
MaxUnpool1d: 2 | r(1, 1, 4), torch.tensor([[[0, 2, 4, 6]]])
MaxUnpool2d: 2 | r(1, 1, 2, 2), torch.tensor([[[[0, 2], [8, 10]]]])
MaxUnpool3d: 2 | r(1, 1, 1, 1, 1), torch.tensor([[[[[0]]]]])
Mish: | m
MultiLabelMarginLoss: | m, im
MultiLabelSoftMarginLoss: | m, m2
MultiMarginLoss: | m, iv
MultiheadAttention: 4, 2 | r(3, 2, 4), r(3, 2, 4), r(3, 2, 4)
NLLLoss: | m, iv
NLLLoss2d: | r(2, 3, 4, 4), k(3, 2, 4, 4)
PReLU: | m
PairwiseDistance: | m, m2
PixelShuffle: 2 | r(1, 4, 2, 2)
PixelUnshuffle: 2 | r(1, 1, 4, 4)
PoissonNLLLoss: | m, m2
RMSNorm: 4 | m
RNN: 4, 4 | r(3, 2, 4), r(1, 2, 4)
RNNCell: 4, 4 | m, m2
RReLU: | m
ReLU: | m
ReLU6: | m
ReflectionPad1d: 1 | r(1, 3, 4)
ReflectionPad2d: 1 | r(1, 3, 4, 4)
ReflectionPad3d: 1 | r(1, 3, 4, 4, 4)
ReplicationPad1d: 1 | r(1, 3, 4)
ReplicationPad2d: 1 | r(1, 3, 4, 4)
ReplicationPad3d: 1 | r(1, 3, 4, 4, 4)
SELU: | m
SiLU: | m
Sigmoid: | m
SmoothL1Loss: | m, m2
SoftMarginLoss: | m, sg(4, 4)
Softmax: -1 | m
Softmax2d: | r(2, 3, 4, 4)
Softmin: -1 | m
Softplus: | m
Softshrink: | m
Softsign: | m
Tanh: | m
Tanhshrink: | m
Threshold: 0.5, 0.1 | m
Transformer: 4, 2, 1, 1, 8 | r(3, 2, 4), r(3, 2, 4)
TransformerDecoder: nn.TransformerDecoderLayer(4, 2, 8), 1 | r(3, 2, 4), r(3, 2, 4)
TransformerDecoderLayer: 4, 2, 8 | r(3, 2, 4), r(3, 2, 4)
TransformerEncoder: nn.TransformerEncoderLayer(4, 2, 8), 1 | r(3, 2, 4)
TransformerEncoderLayer: 4, 2, 8 | r(3, 2, 4)
TripletMarginLoss: | m, m2, m3
TripletMarginWithDistanceLoss: | m, m2, m3
Unflatten: 1, (2, 2) | m
Unfold: 3 | r(1, 3, 6, 6)
Upsample: None, 2 | r(1, 3, 4, 4)
UpsamplingBilinear2d: None, 2 | r(1, 3, 4, 4)
UpsamplingNearest2d: None, 2 | r(1, 3, 4, 4)
ZeroPad1d: 1 | r(1, 3, 4)
ZeroPad2d: 1 | r(1, 3, 4, 4)
ZeroPad3d: 1 | r(1, 3, 4, 4, 4)
"""
# SyncBatchNorm refuses the CPU; the Lazy* classes are measured as what they become.


def _read_ops(text: str) -> dict[str, list[tuple[str, str]]]:
    table: dict[str, list[tuple[str, str]]] = {}
    for line in text.replace("\n    ", " ").strip().splitlines():
        name, _, rest = line.partition(":")
        first, *others = rest.split(" | ")
        forms = [("", first.strip())]
        for other in others:
            form, _, arguments = other.partition(":")
            forms.append((form.strip(), arguments.strip()))
        table[name] = forms
    return table


def _read_layers(text: str) -> dict[str, tuple[str, str]]:
    table: dict[str, tuple[str, str]] = {}
    for line in text.strip().splitlines():
        name, _, rest = line.partition(":")
        arguments, _, inputs = rest.partition("|")
        table[name] = (arguments.strip(), inputs.strip())
    return table


RECIPES = _read_ops(_OPS)
"""Op name -> (form, arguments), the plain form first."""

LAYERS = _read_layers(_LAYERS)
"""Layer class -> (constructor arguments, inputs)."""
