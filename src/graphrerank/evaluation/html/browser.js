
// Query by query: the rankings of two systems side by side, and the edges between the passages in them.
const MAX_LISTED = 50; // number of queries in the list at once; a search narrows it
const template = document.createElement("div");
template.innerHTML = "<svg></svg>";
const SVG = template.firstChild.namespaceURI; // the page contains no address, so that a reader sees that it loads nothing

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

function changeOf(query, left, right) {
  const [before, after] = [query.scores[left], query.scores[right]];
  return before === null || after === null ? 0 : after - before;
}

const FILTERS = {
  all: () => true,
  gained: (change) => change > 0,
  lost: (change) => change < 0,
  unchanged: (change) => change === 0,
};

function movement(before, passage, rank) {
  const old = before.indexOf(passage);
  if (old < 0) return " new";
  return old > rank ? ` ▲${old - rank}` : old < rank ? ` ▼${rank - old}` : "";
}

function ranking(data, query, system, before) {
  const items = query.rankings[system].map((passage, rank) => {
    const [id, text] = data.passages[passage];
    const isRelevant = query.relevant.includes(passage);
    const moved = before ? movement(before, passage, rank) : "";
    return make("li", { class: isRelevant ? "relevant" : "", "data-passage": passage }, make("b", {}, id),
      isRelevant ? make("span", { class: "mark" }, " relevant") : "",
      moved ? make("span", { class: "moved" }, moved) : "", make("small", {}, text));
  });
  const list = items.length ? make("ol", {}, ...items) : make("p", { class: "caption" }, "no passages");
  return make("div", {}, make("h4", {}, `${data.systems[system]}: ${percent(query.scores[system])}`), list);
}

// Springs along the edges, repulsion between all nodes, and a pull to the middle. It starts from a circle, so that a
// query always looks the same, and is fitted into the picture at the end.
function layout(count, edges) {
  const points = Array.from({ length: count }, (_, i) => [Math.cos((2 * Math.PI * i) / count), Math.sin((2 * Math.PI * i) / count)]);
  for (let step = 0; step < 200; step += 1) {
    const force = points.map(([x, y]) => [-0.04 * x, -0.04 * y]);
    const pull = (i, j, strength) => {
      const [x, y] = [points[i][0] - points[j][0], points[i][1] - points[j][1]];
      const size = strength(x * x + y * y);
      for (const [k, sign] of [[i, 1], [j, -1]]) { force[k][0] += sign * size * x; force[k][1] += sign * size * y; }
    };
    for (let i = 0; i < count; i += 1) for (let j = 0; j < i; j += 1) pull(i, j, (square) => 0.01 / Math.max(square, 0.02));
    for (const [i, j] of edges) pull(i, j, () => -0.06);
    points.forEach((point, i) => { for (const k of [0, 1]) point[k] += force[i][k]; });
  }
  const fitted = [0, 1].map((k) => {
    const values = points.map((point) => point[k]);
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const [start, room] = k ? [24, 252] : [24, 392];
    return values.map((value) => (high > low ? start + (room * (value - low)) / (high - low) : start + room / 2));
  });
  return points.map((_, i) => [fitted[0][i], fitted[1][i]]);
}

function graph(data, query, left, right) {
  const ranked = query.rankings[right];
  const passages = [...new Set([...ranked, ...query.rankings[left]])];
  const indices = new Map(passages.map((passage, index) => [passage, index]));
  const joined = query.edges.filter(([a, b]) => indices.has(a) && indices.has(b)).map(([a, b, kind]) => [indices.get(a), indices.get(b), kind]);
  const pairs = [...new Map(joined.map(([a, b]) => [`${a} ${b}`, [a, b]])).values()];
  const points = layout(passages.length, pairs);
  const svg = draw("svg", { viewBox: "0 0 440 300", role: "img", "aria-label": `${passages.length} passages, ${pairs.length} pairs of them joined` });
  for (const [a, b, kind] of joined) {
    svg.append(draw("line", { x1: points[a][0], y1: points[a][1], x2: points[b][0], y2: points[b][1], class: `edge type${kind}` }));
  }
  passages.forEach((passage, index) => {
    const [x, y] = points[index];
    const rank = ranked.indexOf(passage);
    const isRelevant = query.relevant.includes(passage);
    const kind = `node${isRelevant ? " relevant" : ""}${rank < 0 ? " dropped" : ""}`;
    svg.append(draw("g", { class: kind, "data-passage": passage }, draw("circle", { cx: x, cy: y, r: rank < 0 ? 8 : 13 - rank / 3 }),
      draw("text", { x, y: y + 4 }, rank < 0 ? "" : String(rank + 1)),
      draw("title", {}, `${data.passages[passage][0]}${isRelevant ? " (relevant)" : ""}`)));
  });
  const kinds = Object.entries(data.edge_types).filter(([kind]) => joined.some((edge) => String(edge[2]) === kind));
  const legend = kinds.map(([kind, name]) => make("span", {}, make("i", { class: `type${kind}` }), name));
  const caption = joined.length ? `numbers: rank by ${data.systems[right]}; filled: relevant; small: not in its first ten` : "no edges between these passages";
  return make("figure", { class: "query-graph" }, svg, make("figcaption", {}, ...legend, make("span", {}, caption)));
}

function show(data, query, left, right, panel) {
  const count = query.num_relevant;
  const listed = new Set([...query.rankings[left], ...query.rankings[right]]);
  const reached = query.relevant.filter((passage) => listed.has(passage)).length;
  const caption = `${query.query_id} · ${data.measure} · ${reached} of ${count} relevant ${count === 1 ? "passage" : "passages"} in the lists`;
  const columns = left === right ? [ranking(data, query, right)]
    : [ranking(data, query, left), ranking(data, query, right, query.rankings[left])];
  panel.replaceChildren(make("h3", {}, query.query_text || query.query_id), make("p", { class: "caption" }, caption),
    make("div", { class: "rankings" }, ...columns), graph(data, query, left, right));
  const highlight = (event, on) => {
    const passage = event.target.closest?.("[data-passage]")?.dataset.passage;
    for (const element of panel.querySelectorAll("[data-passage]")) element.classList.toggle("highlighted", on && element.dataset.passage === passage);
  };
  panel.onmouseover = (event) => highlight(event, true);
  panel.onmouseout = (event) => highlight(event, false);
}

function browse(root) {
  const data = JSON.parse(root.querySelector("script").textContent);
  const [search, change, leftSelect, rightSelect, list, count, panel] = [".search", ".change", ".left", ".right", ".matches", ".count", ".query"].map((name) => root.querySelector(name));
  for (const [select, chosen] of [[leftSelect, data.baseline], [rightSelect, data.systems.length - 1]]) {
    select.append(...data.systems.map((name, system) => make("option", { value: system }, name)));
    select.value = String(chosen);
  }
  let current = null; // id of the query that is shown
  function refresh() {
    const [left, right] = [Number(leftSelect.value), Number(rightSelect.value)];
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const matches = data.queries.filter((query) => FILTERS[change.value](changeOf(query, left, right))
      && words.every((word) => `${query.query_id} ${query.query_text}`.toLowerCase().includes(word)));
    count.textContent = `${matches.length} of ${data.queries.length}${matches.length > MAX_LISTED ? `, the first ${MAX_LISTED} shown` : ""}`;
    list.replaceChildren(...matches.slice(0, MAX_LISTED).map((query) => {
      const scores = left === right ? percent(query.scores[right]) : `${percent(query.scores[left])} → ${percent(query.scores[right])}`;
      const button = make("button", { type: "button" }, query.query_text || query.query_id, make("small", {}, scores));
      button.addEventListener("click", () => {
        for (const other of list.querySelectorAll("[aria-current]")) other.removeAttribute("aria-current");
        button.setAttribute("aria-current", "true");
        current = query.query_id;
        show(data, query, left, right, panel);
      });
      return make("li", { "data-query": query.query_id }, button);
    }));
    const items = Array.from(list.children);
    (items.find((item) => item.dataset.query === current) ?? items[0])?.querySelector("button").click();
  }
  search.addEventListener("input", refresh);
  for (const select of [change, leftSelect, rightSelect]) select.addEventListener("change", refresh);
  refresh();
}

for (const root of document.querySelectorAll(".browser")) browse(root);
