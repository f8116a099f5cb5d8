// The queries of a data set, one by one: two rankings side by side, and the edges between what they rank.
const LISTED = 50; // queries in the list at once; a search narrows it
const blank = document.createElement("div");
blank.innerHTML = "<svg></svg>";
const SVG = blank.firstChild.namespaceURI;

function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

function draw(name, attributes, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

const percent = (score) => (score === null ? "–" : (100 * score).toFixed(1));

function changeOf(query) {
  const [first, last] = [query[3][0], query[3][query[3].length - 1]];
  return first === null || last === null ? 0 : last - first;
}

const KEPT = {
  all: () => true,
  gained: (query) => changeOf(query) > 0,
  lost: (query) => changeOf(query) < 0,
  unchanged: (query) => changeOf(query) === 0,
};

function ranking(data, query, which) {
  const lists = query[4];
  const before = lists.length > 1 && which === 1 ? lists[0] : null;
  const items = lists[which].map((place, rank) => {
    const [id, text] = data.passages[place];
    const relevant = query[5].includes(place);
    const old = before ? before.indexOf(place) : rank;
    const moved = !before ? "" : old < 0 ? "new" : old > rank ? `▲${old - rank}` : old < rank ? `▼${rank - old}` : "";
    const item = make("li", { class: relevant ? "relevant" : "", "data-place": place });
    item.append(make("b", {}, id), relevant ? make("span", { class: "mark" }, " relevant") : "",
      moved ? make("span", { class: "moved" }, ` ${moved}`) : "", make("small", {}, text));
    return item;
  });
  const score = query[3][which];
  return make("div", {}, make("h4", {}, `${data.systems[which]}: ${percent(score)}`), make("ol", {}, ...items));
}

// Springs along the edges, repulsion between all, a pull to the middle: from a circle, so that one query always looks
// the same; fitted into the picture at the end.
function layout(count, edges) {
  const at = Array.from({ length: count }, (_, i) => [Math.cos((2 * Math.PI * i) / count), Math.sin((2 * Math.PI * i) / count)]);
  for (let step = 0; step < 200; step += 1) {
    const force = at.map(([x, y]) => [-0.04 * x, -0.04 * y]);
    const pull = (i, j, strength) => {
      const [x, y] = [at[i][0] - at[j][0], at[i][1] - at[j][1]];
      const size = strength(x * x + y * y);
      for (const [k, sign] of [[i, 1], [j, -1]]) { force[k][0] += sign * size * x; force[k][1] += sign * size * y; }
    };
    for (let i = 0; i < count; i += 1) for (let j = 0; j < i; j += 1) pull(i, j, (square) => 0.01 / Math.max(square, 0.02));
    for (const [i, j] of edges) pull(i, j, () => -0.06);
    at.forEach((point, i) => { for (const k of [0, 1]) point[k] += force[i][k]; });
  }
  const fitted = [0, 1].map((k) => {
    const values = at.map((point) => point[k]);
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const [start, room] = k ? [24, 252] : [24, 392];
    return values.map((value) => (high > low ? start + (room * (value - low)) / (high - low) : start + room / 2));
  });
  return at.map((_, i) => [fitted[0][i], fitted[1][i]]);
}

function graph(data, query) {
  const [, , , , lists, relevant, edges] = query;
  const ours = lists[lists.length - 1];
  const places = [...new Set([...ours, ...lists[0]])];
  const numbered = new Map(places.map((place, number) => [place, number]));
  const joined = edges.map(([a, b, kind]) => [numbered.get(a), numbered.get(b), kind]);
  const pairs = [...new Map(joined.map(([a, b]) => [`${a} ${b}`, [a, b]])).values()];
  const at = layout(places.length, pairs);
  const label = `${places.length} passages, ${pairs.length} pairs of them joined`;
  const svg = draw("svg", { viewBox: "0 0 440 300", role: "img", "aria-label": label });
  for (const [a, b, kind] of joined) {
    svg.append(draw("line", { x1: at[a][0], y1: at[a][1], x2: at[b][0], y2: at[b][1], class: `edge type${kind}` }));
  }
  places.forEach((place, number) => {
    const [x, y] = at[number];
    const rank = ours.indexOf(place);
    const name = draw("title", {}, `${data.passages[place][0]}${relevant.includes(place) ? " (relevant)" : ""}`);
    const kind = `node${relevant.includes(place) ? " relevant" : ""}${rank < 0 ? " left" : ""}`;
    svg.append(draw("g", { class: kind, "data-place": place }, draw("circle", { cx: x, cy: y, r: rank < 0 ? 8 : 13 - rank / 3 }),
      draw("text", { x, y: y + 4 }, rank < 0 ? "" : String(rank + 1)), name));
  });
  const kinds = Object.entries(data.types).filter(([kind]) => joined.some((edge) => String(edge[2]) === kind));
  const legend = kinds.map(([kind, name]) => make("span", {}, make("i", { class: `type${kind}` }), name));
  const caption = joined.length ? "numbers: rank by the last system; filled: relevant; small: it left the first ten" : "no edges between these passages";
  return make("figure", { class: "query-graph" }, svg, make("figcaption", {}, ...legend, make("span", {}, caption)));
}

function show(data, query, panel) {
  const [id, text, count, , lists, relevant] = query;
  const listed = `${relevant.length} of ${count} relevant ${count === 1 ? "passage" : "passages"} in the lists`;
  const columns = make("div", { class: "rankings" }, ...lists.map((_, which) => ranking(data, query, which)));
  panel.replaceChildren(make("h3", {}, text || id), make("p", { class: "caption" }, `${id} · ${data.measure} · ${listed}`), columns, graph(data, query));
  const light = (event, on) => {
    const place = event.target.closest?.("[data-place]")?.dataset.place;
    for (const element of panel.querySelectorAll("[data-place]")) element.classList.toggle("lit", on && element.dataset.place === place);
  };
  panel.onmouseover = (event) => light(event, true);
  panel.onmouseout = (event) => light(event, false);
}

function browse(root) {
  const data = JSON.parse(root.querySelector("script").textContent);
  const [search, kept, list, count, panel] = [".search", ".kept", ".found", ".count", ".query"].map((name) => root.querySelector(name));
  function refresh() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = data.queries.filter((query) => KEPT[kept.value](query) && words.every((word) => `${query[0]} ${query[1]}`.toLowerCase().includes(word)));
    count.textContent = `${found.length} of ${data.queries.length}${found.length > LISTED ? `, the first ${LISTED} shown` : ""}`;
    list.replaceChildren(...found.slice(0, LISTED).map((query) => {
      const change = data.systems.length > 1 ? make("small", {}, ` ${percent(query[3][0])} → ${percent(query[3][1])}`) : "";
      const button = make("button", { type: "button" }, query[1] || query[0], change);
      button.addEventListener("click", () => {
        for (const other of list.querySelectorAll("[aria-current]")) other.removeAttribute("aria-current");
        button.setAttribute("aria-current", "true");
        show(data, query, panel);
      });
      return make("li", {}, button);
    }));
  }
  search.addEventListener("input", refresh);
  kept.addEventListener("change", refresh);
  refresh();
  list.querySelector("button")?.click();
}

for (const root of document.querySelectorAll(".browser")) browse(root);
