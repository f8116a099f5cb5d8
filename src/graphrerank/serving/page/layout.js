// Force-directed layout: nodes repel each other, edges attract, and gravity pulls to the centre. O(n²) per step, n up to 1,000.
const START_SPACING = 26;
const REPULSION = 130; // divided by the distance
const LENGTH = 58;
const GRAVITY = 0.03;
const ALONE = 5; // factor on the gravity of nodes without edges
const DAMPING = 0.6;
const COOLING = 0.977;
export const COLD = 0.02;

export class Layout {
  /** `order` lists the nodes, best first; the best nodes start in the centre. `aspect` is width divided by height. */
  constructor(count, edges, order, aspect) {
    this.aspect = Math.max(0.5, Math.min(2, aspect));
    this.x = new Float64Array(count);
    this.y = new Float64Array(count);
    this.dx = new Float64Array(count);
    this.dy = new Float64Array(count);
    this.heat = 1;
    const pairs = new Map(edges.map(({ a, b }) => [a * count + b, [a, b]]));
    this.pairs = Array.from(pairs.values());
    this.degree = new Float64Array(count);
    for (const [a, b] of this.pairs) { this.degree[a] += 1; this.degree[b] += 1; }
    order.forEach((node, place) => { // deterministic spiral
      const radius = START_SPACING * Math.sqrt(place + 0.5);
      const angle = place * 2.399963;
      this.x[node] = radius * Math.cos(angle);
      this.y[node] = radius * Math.sin(angle);
    });
  }

  get isCold() { return this.heat < COLD; }

  step() {
    const { x, y, dx, dy, heat } = this;
    const count = x.length;
    for (let i = 0; i < count; i += 1) {
      for (let j = i + 1; j < count; j += 1) {
        const ox = x[i] - x[j];
        const oy = y[i] - y[j];
        const push = (REPULSION * heat) / (ox * ox + oy * oy + 60);
        dx[i] += ox * push; dy[i] += oy * push; dx[j] -= ox * push; dy[j] -= oy * push;
      }
    }
    for (const [a, b] of this.pairs) {
      const ox = x[b] - x[a];
      const oy = y[b] - y[a];
      const distance = Math.hypot(ox, oy) || 1;
      const pull = (heat * (distance - LENGTH)) / distance / Math.min(this.degree[a], this.degree[b]) * 0.7;
      const share = this.degree[a] / (this.degree[a] + this.degree[b]);
      dx[a] += ox * pull * (1 - share); dy[a] += oy * pull * (1 - share);
      dx[b] -= ox * pull * share; dy[b] -= oy * pull * share;
    }
    for (let i = 0; i < count; i += 1) {
      const gravity = GRAVITY * heat * (this.degree[i] ? 1 : ALONE);
      dx[i] = (dx[i] - (x[i] * gravity) / this.aspect) * DAMPING;
      dy[i] = (dy[i] - y[i] * gravity * this.aspect) * DAMPING;
      x[i] += dx[i];
      y[i] += dy[i];
    }
    this.heat *= COOLING;
  }

  /** Run steps for the given number of milliseconds, or until the layout has cooled down. */
  run(milliseconds) {
    const end = performance.now() + milliseconds;
    do this.step(); while (!this.isCold && performance.now() < end);
  }
}
