// Two rankings side by side, with a line that connects the positions of each passage.
import { bar, byId, el, number, percent, svg } from "./elements.js";

const ROW = 44; // pixels, as in style.css
const STEPS = [10, 30, Infinity];
let shown = 0;

export function resetLists() { shown = 0; }

/** Draw both lists. `select` is called with the node that the user chooses. */
export function drawLists(view, left, right, select) {
  const rankings = [view.rankings[left], view.rankings[right]];
  const places = rankings.map((ranking) => new Map(ranking.nodes.map((node, place) => [node, place])));
  const longest = Math.max(...rankings.map((ranking) => ranking.nodes.length));
  const count = Math.min(STEPS[shown], longest);
  const columns = rankings.map((ranking, side) => column(view, ranking, count, side === 1 ? places[0] : null, select, side));
  byId("lists").replaceChildren(columns[0], lines(rankings, places, count), columns[1]);
  const more = byId("more");
  more.hidden = longest <= STEPS[0];
  more.textContent = count < longest ? `Show ${Math.min(STEPS[shown + 1], longest)}` : `Show ${STEPS[0]}`;
  more.onclick = () => {
    shown = count < longest ? shown + 1 : 0;
    drawLists(view, left, right, select);
    mark(document.querySelector("#graph .node[aria-pressed=true]")?.dataset.node ?? null);
  };
}

function column(view, ranking, count, before, select, side) {
  const scores = ranking.scores.slice(0, count).filter((score) => score !== null);
  const [low, high] = [Math.min(...ranking.scores.filter((score) => score !== null)), Math.max(...scores)];
  const rows = ranking.nodes.slice(0, count).map((node, place) => {
    const probability = ranking.probabilities?.[place] ?? null;
    const score = ranking.scores[place];
    const share = probability ?? (score === null ? 0 : high > low ? (score - low) / (high - low) : 1);
    const said = probability === null ? `score ${number(score)}` : `probability ${percent(probability)}`;
    const button = el(
      "button", { type: "button", "data-node": node, title: view.nodes[node].title, onclick: () => select(node) },
      el("span", { class: "rank" }, String(place + 1)),
      el("span", { class: "name" }, ...sectionFirst(view.nodes[node].title)),
      before ? moved(before.get(node), place) : null,
      bar(share, said),
      el("span", { class: "figure", "aria-hidden": "true" }, probability === null ? number(score) : percent(probability)),
    );
    return el("li", {}, button, before ? view.judgements?.buttons(node) : null);
  });
  const figures = ranking.probabilities ? "probability" : "score";
  const head = el("h3", {}, el("span", {}, ranking.name), el("span", { class: "figure", "aria-hidden": "true" }, figures));
  return el("div", { class: "column", "data-column": side === 1 ? "right" : "left" }, head, el("ol", {}, ...rows));
}

/** Return the section of a title "Page > Chapter > Section" before its path, because the path is often the same. */
function sectionFirst(title) {
  const parts = title.split(" > ");
  const section = parts.pop();
  return parts.length ? [el("span", {}, section), el("span", { class: "path" }, parts.join(" > "))] : [title];
}

function moved(before, place) {
  if (before === undefined) return el("span", { class: "moved up" }, "new");
  const by = before - place;
  if (by === 0) return el("span", { class: "moved", "aria-label": "same rank" }, "=");
  const words = `${by > 0 ? "up" : "down"} ${Math.abs(by)} from ${before + 1}`;
  return el("span", { class: `moved ${by > 0 ? "up" : "down"}`, "aria-label": words, title: words }, `${by > 0 ? "▲" : "▼"}${Math.abs(by)}`);
}

function lines(rankings, places, count) {
  const height = count * ROW;
  const nodes = new Set(rankings.flatMap((ranking) => ranking.nodes.slice(0, count)));
  const paths = [];
  for (const node of nodes) {
    const [from, to] = places.map((ranks) => ranks.get(node));
    if (from === undefined || to === undefined) continue;
    const [y, z] = [from, to].map((place) => (place < count ? (place + 0.5) * ROW : height + 14));
    const kind = to < from ? "up" : to > from ? "down" : "same";
    const away = from >= count || to >= count ? " away" : "";
    paths.push(svg("path", { class: kind + away, "data-node": node, d: `M0 ${y} C34 ${y} 30 ${z} 64 ${z}` }));
  }
  const drawing = svg("svg", { viewBox: `0 0 64 ${height}`, preserveAspectRatio: "none", "aria-hidden": "true", class: "moves" }, ...paths);
  drawing.style.height = `${height}px`;
  return drawing;
}

/** Highlight a passage in both lists, and the line between them. */
export function mark(node) {
  for (const item of document.querySelectorAll("#lists [data-node]")) {
    const isChosen = node !== null && item.dataset.node === String(node);
    item.classList.toggle("chosen", isChosen);
    if (item.tagName === "BUTTON") item.setAttribute("aria-current", String(isChosen));
  }
}
