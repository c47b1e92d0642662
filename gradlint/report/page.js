(() => {
  "use strict";
  const one = (selector, inside = document) => inside.querySelector(selector);
  const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];
  const root = document.documentElement;
  const canvas = one("#canvas");
  const picture = one("#picture");
  const findings = all(".finding");
  const search = one("#search");
  const hits = one("#hits");
  const help = one("#help");
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  const behavior = () => (still.matches ? "auto" : "smooth");
  let zoom = 1;
  let current = -1;

  root.classList.add("js");

  // The picture is a scrolled element, so that it can be moved with what the browser already offers.
  const natural = picture && [picture.width.baseVal.value, picture.height.baseVal.value];
  function zoomTo(wanted, x, y) {
    if (!picture) return;
    const frame = canvas.getBoundingClientRect();
    const left = x ?? frame.left + frame.width / 2;
    const top = y ?? frame.top + frame.height / 2;
    const before = picture.getBoundingClientRect();
    const [px, py] = [(left - before.left) / zoom, (top - before.top) / zoom];
    zoom = Math.min(Math.max(wanted, 0.15), 3);
    picture.style.width = `${natural[0] * zoom}px`;
    picture.style.height = `${natural[1] * zoom}px`;
    const after = picture.getBoundingClientRect();
    canvas.scrollLeft += after.left + px * zoom - left;
    canvas.scrollTop += after.top + py * zoom - top;
    one("#level").textContent = `${Math.round(zoom * 100)}%`;
  }
  function fit() {
    if (picture) zoomTo(Math.min((canvas.clientWidth - 8) / natural[0], (canvas.clientHeight - 8) / natural[1], 1.5));
  }
  function look(keys, smooth = true) {
    all(".box.focus").forEach((box) => box.classList.remove("focus"));
    const boxes = keys.map((key) => document.getElementById(key)).filter(Boolean);
    boxes.forEach((box) => box.classList.add("focus"));
    if (!boxes.length) return;
    const box = boxes[0].getBoundingClientRect();
    const frame = canvas.getBoundingClientRect();
    canvas.scrollBy({
      left: box.left + box.width / 2 - frame.left - frame.width / 2,
      top: box.top + box.height / 2 - frame.top - frame.height / 2,
      behavior: smooth ? behavior() : "auto",
    });
  }

  const keysOf = (element) => element.dataset.boxes.split(" ").filter(Boolean);
  all(".show").forEach((button) =>
    button.addEventListener("click", () => {
      if (!button.closest(".stage")) canvas.scrollIntoView({ block: "nearest" });
      look(keysOf(button));
    }),
  );
  function select(number, smooth = true) {
    if (!findings.length) return;
    current = Math.min(Math.max(number, 0), findings.length - 1);
    findings.forEach((finding, place) => {
      finding.open = place === current;
    });
    const finding = findings[current];
    look(keysOf(finding), smooth);
    const list = one(".list");
    const [box, frame] = [finding.getBoundingClientRect(), list.getBoundingClientRect()];
    if (box.top < frame.top || box.bottom > frame.bottom) list.scrollBy({ top: box.top - frame.top - 8, behavior: smooth ? behavior() : "auto" });
  }
  function walk(step) {
    select(current < 0 ? 0 : current + step);
    one("summary", findings[current])?.focus({ preventScroll: true });
  }
  findings.forEach((finding, number) => {
    one("summary", finding).addEventListener("click", (event) => {
      event.preventDefault();
      if (finding.open) finding.open = false;
      else select(number);
    });
  });

  function show(element) {
    for (let outer = element; outer; outer = outer.parentElement) if (outer.tagName === "DETAILS") outer.open = true;
    element.scrollIntoView({ block: "center", behavior: behavior() });
    element.classList.remove("flash");
    void element.offsetWidth;
    element.classList.add("flash");
  }
  all(".box").forEach((box) =>
    box.addEventListener("click", (event) => {
      event.preventDefault();
      const number = findings.findIndex((finding) => keysOf(finding)[0] === box.id);
      if (number >= 0) return select(number);
      look([box.id]);
      const row = document.getElementById((box.getAttribute("href") || "#").slice(1));
      if (row) show(row);
    }),
  );

  if (picture) {
    let from = null;
    let moved = false;
    canvas.addEventListener("pointerdown", (event) => {
      if (event.pointerType === "mouse" && event.button === 0) from = [event.clientX, event.clientY, canvas.scrollLeft, canvas.scrollTop];
      moved = false;
    });
    addEventListener("pointermove", (event) => {
      if (!from) return;
      const [x, y] = [event.clientX - from[0], event.clientY - from[1]];
      moved = moved || Math.abs(x) + Math.abs(y) > 5;
      if (!moved) return;
      canvas.classList.add("drag");
      canvas.scrollLeft = from[2] - x;
      canvas.scrollTop = from[3] - y;
    });
    addEventListener("pointerup", () => {
      from = null;
      canvas.classList.remove("drag");
    });
    canvas.addEventListener("dragstart", (event) => event.preventDefault());
    // The end of a drag is no click on the box under it.
    canvas.addEventListener("click", (event) => moved && (event.stopPropagation(), event.preventDefault()), true);
    canvas.addEventListener(
      "wheel",
      (event) => {
        if (!event.ctrlKey && !event.metaKey) return;
        event.preventDefault();
        zoomTo(zoom * Math.exp(-event.deltaY / 300), event.clientX, event.clientY);
      },
      { passive: false },
    );
    one("#in").addEventListener("click", () => zoomTo(zoom * 1.25));
    one("#out").addEventListener("click", () => zoomTo(zoom / 1.25));
    one("#level").addEventListener("click", () => zoomTo(1));
    one("#fit").addEventListener("click", fit);
  }

  let entries = null;
  let found = [];
  let chosen = 0;
  function index() {
    const entry = (text, kind, bad, go) => ({ text: text.trim(), kind, bad, go, low: text.toLowerCase() });
    const wrong = (element) => /\b(none|cut|zero|orphan|nonfinite|never)\b/.test(element.getAttribute("class"));
    const names = [
      ...all(".box").map((box) => entry(one("title", box).textContent, "picture", wrong(box), () => look([box.id]))),
      ...all(".row").map((row) => entry(one("summary > :first-child", row).textContent, "layer", wrong(one("summary", row)), () => show(row))),
      ...all(".params tr").map((row) => entry(row.cells[0].textContent, row.cells[3].textContent, wrong(row), () => show(row))),
    ];
    return [
      ...findings.map((finding, number) => entry(one(".message", finding).textContent, one(".verdict", finding).textContent, true, () => select(number))),
      ...names.filter((name) => name.bad),
      ...names.filter((name) => !name.bad),
    ];
  }
  function find() {
    entries = entries || index();
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    found = words.length ? entries.filter((entry) => words.every((word) => entry.low.includes(word))).slice(0, 14) : [];
    chosen = 0;
    hits.replaceChildren(
      ...found.map((entry, number) => {
        const item = document.createElement("li");
        item.id = `h${number}`;
        item.role = "option";
        for (const text of [entry.text, entry.kind]) item.appendChild(document.createElement("span")).textContent = text;
        item.addEventListener("pointerdown", (event) => {
          event.preventDefault();
          choose(number);
        });
        return item;
      }),
    );
    if (words.length && !found.length) hits.textContent = "Nothing of that name";
    hits.hidden = !words.length;
    search.setAttribute("aria-expanded", String(!hits.hidden));
    mark();
  }
  function mark() {
    all("li", hits).forEach((item, number) => item.setAttribute("aria-selected", String(number === chosen)));
    if (found.length) search.setAttribute("aria-activedescendant", `h${chosen}`);
    else search.removeAttribute("aria-activedescendant");
    document.getElementById(`h${chosen}`)?.scrollIntoView({ block: "nearest" });
  }
  function leave() {
    hits.hidden = true;
    search.setAttribute("aria-expanded", "false");
    search.blur();
  }
  function choose(number) {
    leave();
    found[number]?.go();
  }
  search.addEventListener("input", find);
  search.addEventListener("focus", () => search.value && find());
  search.addEventListener("blur", () => (hits.hidden = true));
  search.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && found.length) {
      event.preventDefault();
      chosen = (chosen + step + found.length) % found.length;
      mark();
    } else if (event.key === "Enter") choose(chosen);
    else if (event.key === "Escape") leave();
  });

  const THEME = "gradlint-theme";
  function remember(value) {
    // Pages opened from a file may have no storage.
    try {
      if (value) localStorage.setItem(THEME, value);
      return localStorage.getItem(THEME);
    } catch {
      return value;
    }
  }
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
  const stored = remember();
  if (stored) root.dataset.theme = stored;
  function turn() {
    root.dataset.theme = dark() ? "light" : "dark";
    remember(root.dataset.theme);
  }
  one("#theme").addEventListener("click", turn);
  one("#keys").addEventListener("click", () => help.showModal());

  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target === search || help.open) return;
    const arrows = event.target.closest?.(".findings");
    const does = {
      j: () => walk(1),
      k: () => walk(-1),
      ArrowDown: arrows && (() => walk(1)),
      ArrowUp: arrows && (() => walk(-1)),
      "/": () => search.focus(),
      "+": () => zoomTo(zoom * 1.25),
      "=": () => zoomTo(zoom * 1.25),
      "-": () => zoomTo(zoom / 1.25),
      0: () => zoomTo(1),
      f: fit,
      t: turn,
      "?": () => help.showModal(),
      Escape: () => look([]),
    }[event.key];
    if (!does) return;
    event.preventDefault();
    does();
  });

  let opened = [];
  addEventListener("beforeprint", () => {
    opened = findings.map((finding) => finding.open);
    findings.forEach((finding) => (finding.open = true));
  });
  addEventListener("afterprint", () => findings.forEach((finding, number) => (finding.open = opened[number])));

  // The findings are sorted, so a confirmed one is first if there is any.
  if (findings.length) select(0, false);
  else if (picture) {
    // What is wrong is in sight, and not marked as if it had been chosen.
    const first = one(".box.stop") || one(".box:is(.nonfinite, .none, .zero, .never, .orphan)");
    look(first ? [first.id] : [], false);
    first?.classList.remove("focus");
  }
})();
