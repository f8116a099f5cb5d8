// Drawing of the candidate graph. The many edges are on a canvas; nodes are elements that can be clicked and focused.
import { byId, el, svg } from "./elements.js";
import { Layout } from "./layout.js";

export const TYPES = ["reference", "entity", "adjacency", "similarity", "other"];
const LABELS = 5; // number of best nodes with a label
const FRAME_MS = 9; // time of each frame that the layout may use
const MARGIN = 34;
const LETTER = 7; // approximate width of a letter in a label
const LINE = 17;

export class Graph {
  constructor(host, onselect) {
    this.host = host;
    this.onselect = onselect;
    this.canvas = el("canvas", { "aria-hidden": "true" });
    this.drawing = svg("svg", { role: "group", "aria-label": "Candidate graph. Arrow keys move to the nearest passage." });
    this.tip = el("div", { class: "tip", role: "tooltip", id: "tip", hidden: true });
    host.replaceChildren(this.canvas, this.drawing, this.tip);
    this.hidden = new Set();
    this.nodes = [];
    this.chosen = this.hovered = null;
    this.isFitted = true;
    this.listen();
  }

  /** Show a view. `ranking` determines sizes and colours. */
  show(view, ranking) {
    this.view = view;
    const listed = new Set(ranking.nodes);
    const order = [...ranking.nodes, ...view.nodes.keys()].filter((node, place) => place < ranking.nodes.length || !listed.has(node));
    this.layout = new Layout(view.nodes.length, view.edges, order, this.host.clientWidth / this.host.clientHeight);
    this.chosen = this.hovered = null;
    this.isFitted = true;
    this.nodes = view.nodes.map((node, index) => this.element(node, index));
    this.drawing.replaceChildren(...this.nodes);
    this.rank(ranking);
    this.legend();
    this.layout.run(60);
    this.animate();
  }

  element(node, index) {
    const label = svg("text", { "aria-hidden": "true" }, short(node.title.split(" > ").pop()));
    return svg(
      "g", { class: "node", role: "button", tabindex: -1, "data-node": index, "aria-pressed": "false" },
      svg("circle", {}), label,
    );
  }

  /** Set sizes, colours and order of the nodes by a ranking. */
  rank(ranking) {
    const scores = ranking.scores.map((score) => score ?? -Infinity);
    const finite = scores.filter(Number.isFinite);
    const [low, high] = [Math.min(...finite), Math.max(...finite)];
    this.radius = new Float64Array(this.nodes.length).fill(3.5);
    this.nodes.forEach((element) => { element.dataset.rank = ""; element.setAttribute("aria-label", `not listed: ${this.view.nodes[element.dataset.node].title}`); });
    ranking.nodes.forEach((node, place) => {
      const share = ranking.probabilities?.[place] ?? (high > low && Number.isFinite(scores[place]) ? (scores[place] - low) / (high - low) : 0.5);
      this.radius[node] = 4 + 9 * Math.sqrt(Math.max(0, share));
      const element = this.nodes[node];
      element.dataset.rank = place < 5 ? "best" : place < 10 ? "good" : "rest";
      element.classList.toggle("named", place < LABELS);
      element.setAttribute("aria-label", `rank ${place + 1}: ${this.view.nodes[node].title}`);
    });
    this.nodes.forEach((element, node) => {
      element.firstChild.setAttribute("r", this.radius[node].toFixed(1));
      element.lastChild.setAttribute("y", (-this.radius[node] - 4).toFixed(1));
    });
    this.order = ranking.nodes;
    this.focusable(ranking.nodes[0] ?? 0);
    this.draw();
  }

  focusable(node) {
    this.nodes.forEach((element, index) => element.setAttribute("tabindex", index === node ? 0 : -1));
  }

  animate() {
    cancelAnimationFrame(this.frame);
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    const next = () => {
      this.layout.run(still ? 40 : FRAME_MS);
      if (!still || this.layout.isCold) this.draw();
      this.host.dataset.settled = String(this.layout.isCold);
      if (!this.layout.isCold) this.frame = requestAnimationFrame(next);
    };
    this.draw();
    this.frame = requestAnimationFrame(next);
  }

  /** Fit the drawing into the host element. */
  fit() {
    const { x, y } = this.layout;
    const [left, right, top, bottom] = [Math.min(...x), Math.max(...x), Math.min(...y), Math.max(...y)];
    const width = this.host.clientWidth - 2 * MARGIN;
    const height = this.host.clientHeight - 2 * MARGIN;
    this.scale = Math.min(3, width / (right - left || 1), height / (bottom - top || 1));
    this.shiftX = this.host.clientWidth / 2 - (this.scale * (left + right)) / 2;
    this.shiftY = this.host.clientHeight / 2 - (this.scale * (top + bottom)) / 2;
  }

  draw() {
    if (!this.view || !this.layout || !this.host.clientWidth) return;
    if (this.isFitted) this.fit();
    const { x, y } = this.layout;
    const at = (node) => [x[node] * this.scale + this.shiftX, y[node] * this.scale + this.shiftY];
    const focus = this.hovered ?? this.chosen;
    const near = new Set(focus === null ? [] : [focus]);
    this.paintEdges(at, focus, near);
    const width = this.host.clientWidth;
    this.nodes.forEach((element, node) => {
      const [px, py] = at(node);
      element.setAttribute("transform", `translate(${px.toFixed(1)} ${py.toFixed(1)})`);
      element.classList.toggle("far", focus !== null && !near.has(node));
      element.classList.toggle("hovered", node === this.hovered);
      element.lastChild.setAttribute("text-anchor", px > width * 0.8 ? "end" : px < width * 0.2 ? "start" : "middle");
    });
    this.spareLabels(at);
  }

  /** Hide labels that would overlap the label or the circle of a better node. */
  spareLabels(at) {
    const taken = []; // boxes [left, right, top, bottom]
    const width = this.host.clientWidth;
    for (const node of this.order) {
      const element = this.nodes[node];
      if (!element.classList.contains("named")) continue;
      const [px, py] = at(node);
      const length = element.lastChild.textContent.length * LETTER;
      const left = px > width * 0.8 ? px - length : px < width * 0.2 ? px : px - length / 2; // as `text-anchor`
      const radius = this.radius[node];
      const box = [left, left + length, py - radius - LINE, py - radius];
      const isFree = taken.every(([l, r, t, b]) => r < box[0] || l > box[1] || b < box[2] || t > box[3]);
      element.classList.toggle("hushed", !isFree);
      if (isFree) taken.push(box);
      taken.push([px - radius, px + radius, py - radius + 1, py + radius]);
    }
  }

  paintEdges(at, focus, near) {
    const ratio = devicePixelRatio || 1;
    const [width, height] = [this.host.clientWidth, this.host.clientHeight];
    if (this.canvas.width !== Math.round(width * ratio) || this.canvas.height !== Math.round(height * ratio)) {
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round(height * ratio);
    }
    const brush = this.canvas.getContext("2d");
    brush.setTransform(ratio, 0, 0, ratio, 0, 0);
    brush.clearRect(0, 0, width, height);
    const style = getComputedStyle(this.host);
    const faint = Math.max(0.12, Math.min(0.5, 6 / Math.sqrt(this.view.edges.length + 1)));
    for (const isNear of [false, true]) {
      for (const type of TYPES) {
        if (this.hidden.has(type)) continue;
        brush.beginPath();
        for (const edge of this.view.edges) {
          const touches = focus !== null && (edge.a === focus || edge.b === focus);
          if ((TYPES.includes(edge.type) ? edge.type : "other") !== type || touches !== isNear) continue;
          if (touches) { near.add(edge.a); near.add(edge.b); }
          brush.moveTo(...at(edge.a));
          brush.lineTo(...at(edge.b));
        }
        brush.strokeStyle = style.getPropertyValue(`--${type}`);
        brush.globalAlpha = isNear ? 0.95 : focus === null ? faint : faint * 0.6;
        brush.lineWidth = isNear ? 2.2 : 1.2;
        brush.stroke();
      }
    }
  }

  legend() {
    const counts = new Map();
    for (const { type } of this.view.edges) {
      const known = TYPES.includes(type) ? type : "other";
      counts.set(known, (counts.get(known) ?? 0) + 1);
    }
    this.hidden.clear();
    const chips = TYPES.filter((type) => counts.has(type)).map((type) => el(
      "button", {
        type: "button", "aria-pressed": "true", "data-type": type, onclick: (event) => {
          const isHidden = !this.hidden.delete(type);
          if (isHidden) this.hidden.add(type);
          event.currentTarget.setAttribute("aria-pressed", String(!isHidden));
          this.draw();
        },
      },
      el("span", { class: `dot ${type}` }), `${type} ${counts.get(type).toLocaleString("en")}`,
    ));
    byId("legend").replaceChildren(...(chips.length ? chips : [el("span", { class: "soft" }, "no edges among the candidates")]));
  }

  choose(node) {
    this.chosen = node;
    this.nodes.forEach((element, index) => {
      element.setAttribute("aria-pressed", String(index === node));
    });
    if (node !== null) this.focusable(node);
    this.draw();
  }

  hover(node, isFocus = false) {
    this.hovered = node;
    this.draw();
    this.tip.hidden = node === null;
    if (node === null) return;
    const place = this.order.indexOf(node);
    this.tip.textContent = `${place < 0 ? "–" : place + 1}  ${this.view.nodes[node].title}`;
    const px = this.layout.x[node] * this.scale + this.shiftX;
    const py = this.layout.y[node] * this.scale + this.shiftY;
    const below = py < 60;
    this.tip.style.left = `${Math.max(4, Math.min(this.host.clientWidth - this.tip.offsetWidth - 4, px - this.tip.offsetWidth / 2))}px`;
    this.tip.style.top = `${below ? py + this.radius[node] + 8 : py - this.tip.offsetHeight - this.radius[node] - 8}px`;
    if (isFocus) this.nodes[node].focus();
  }

  listen() {
    const nodeOf = (event) => { const group = event.target.closest?.(".node"); return group ? Number(group.dataset.node) : null; };
    this.drawing.addEventListener("pointerover", (event) => { if (nodeOf(event) !== this.hovered) this.hover(nodeOf(event)); });
    this.drawing.addEventListener("pointerleave", () => this.hover(null));
    this.drawing.addEventListener("focusin", (event) => this.hover(nodeOf(event)));
    this.drawing.addEventListener("focusout", () => this.hover(null));
    this.drawing.addEventListener("click", (event) => { const node = nodeOf(event); if (node !== null) this.onselect(node); });
    this.drawing.addEventListener("keydown", (event) => this.key(event, nodeOf(event)));
    let held = null;
    this.drawing.addEventListener("pointerdown", (event) => { if (nodeOf(event) === null && event.pointerType !== "touch") held = [event.clientX, event.clientY]; });
    addEventListener("pointermove", (event) => {
      if (!held) return;
      this.isFitted = false;
      this.shiftX += event.clientX - held[0];
      this.shiftY += event.clientY - held[1];
      held = [event.clientX, event.clientY];
      this.draw();
    });
    addEventListener("pointerup", () => { held = null; });
    this.drawing.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return; // a plain wheel event scrolls the page
      event.preventDefault();
      const box = this.host.getBoundingClientRect();
      this.zoom(Math.exp(-event.deltaY / 300), event.clientX - box.x, event.clientY - box.y);
    }, { passive: false });
    new ResizeObserver(() => this.draw()).observe(this.host);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  zoom(factor, px = this.host.clientWidth / 2, py = this.host.clientHeight / 2) {
    if (!this.layout) return;
    this.isFitted = factor === 0;
    if (factor) {
      this.scale *= factor;
      this.shiftX = px - (px - this.shiftX) * factor;
      this.shiftY = py - (py - this.shiftY) * factor;
    }
    this.draw();
  }

  key(event, node) {
    const direction = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (node === null) return;
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.onselect(node);
    } else if (direction) {
      event.preventDefault();
      const { x, y } = this.layout;
      let [best, least] = [null, Infinity];
      for (let other = 0; other < this.nodes.length; other += 1) {
        const along = (x[other] - x[node]) * direction[0] + (y[other] - y[node]) * direction[1];
        const across = Math.abs((x[other] - x[node]) * direction[1]) + Math.abs((y[other] - y[node]) * direction[0]);
        if (other !== node && along > 0 && along + 2 * across < least) [best, least] = [other, along + 2 * across];
      }
      if (best !== null) { this.focusable(best); this.hover(best, true); }
    }
  }
}

const short = (title) => (title.length > 30 ? `${title.slice(0, 28).trim()}…` : title);
