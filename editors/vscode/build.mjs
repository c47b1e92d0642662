// Bundles the extension into dist/extension.js, with the licences of what is bundled beside it.

import { copyFile, readFile, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import path from 'node:path';

import { build } from 'esbuild';

const here = import.meta.dirname;

const { metafile } = await build({
    absWorkingDir: here,
    entryPoints: ['src/extension.ts'],
    outfile: 'dist/extension.js',
    bundle: true,
    platform: 'node',
    target: 'node20',
    format: 'cjs',
    external: ['vscode'],
    minify: true,
    metafile: true,
    logLevel: 'warning',
});

const bundled = new Set(
    Object.keys(metafile.inputs)
        .map((file) => /^node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(file)?.[1])
        .filter((name) => name !== undefined),
);
const notices = [];
for (const name of [...bundled].sort()) {
    const folder = path.join(here, 'node_modules', name);
    const { version, license } = createRequire(import.meta.url)(path.join(folder, 'package.json'));
    notices.push(`${name} ${version} (${license})\n\n${(await licence(folder)).trim()}\n`);
}
await writeFile(path.join(here, 'dist', 'THIRD-PARTY-NOTICES.txt'), notices.join(`\n${'-'.repeat(80)}\n\n`));

// One licence for all of gradlint; the packer wants it beside package.json.
await copyFile(path.join(here, '..', '..', 'LICENSE'), path.join(here, 'LICENSE'));

async function licence(folder) {
    for (const name of ['LICENSE', 'LICENSE.md', 'LICENSE.txt', 'License.txt', 'license.txt']) {
        try {
            return await readFile(path.join(folder, name), 'utf8');
        } catch (error) {
            if (error.code !== 'ENOENT') {
                throw error;
            }
        }
    }
    throw new Error(`${folder} has no licence to pass on`);
}
