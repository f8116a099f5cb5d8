// rerank.cjs: node rerank.cjs DIR
const fs = require("node:fs");
const ort = require("onnxruntime-web");

const EDGE_TYPES = ["reference", "entity", "adjacency", "similarity", "other"];
const ARRAYS = { float32: Float32Array, int64: BigInt64Array };

/** Open an artifact's ONNX file. */
async function load(folder) {
  ort.env.wasm.numThreads = 1;
  const manifest = JSON.parse(fs.readFileSync(`${folder}/manifest.json`, "utf8"));
  const session = await ort.InferenceSession.create(fs.readFileSync(`${folder}/model.onnx`));
  return { manifest, session };
}

/** Run the file on flat arrays with their shapes, { name: { dims, data } }. */
async function run({ manifest, session }, inputs) {
  const feeds = {};
  for (const { name, dtype } of manifest.artifact.inputs) {
    const { dims, data } = inputs[name];
    const numbers = dtype === "int64" ? data.map(BigInt) : data;
    feeds[name] = new ort.Tensor(dtype, ARRAYS[dtype].from(numbers), dims);
  }
  const outputs = await session.run(feeds);
  return Object.fromEntries(Object.entries(outputs).map(([name, tensor]) => [name, Array.from(tensor.data)]));
}

/**
 * Rank the candidates of several queries, best first.
 *
 * A query is { ids, features, edges }: features { base_score: [...], ... } by name, a number for each candidate, 0 for names left out;
 * edges [{ from, to, weight, type }, ...] between places, weight and type optional; each joins both ways.
 */
async function rerank(model, queries) {
  const names = model.manifest.retriever.feature_names;
  const rows = [], sources = [], targets = [], weights = [], types = [], ptr = [0];
  for (const { ids, features, edges } of queries) {
    const start = ptr[ptr.length - 1];
    const unknown = Object.keys(features).filter((name) => !names.includes(name));
    if (unknown.length) throw new Error(`features must be among ${names}, got ${unknown}`);
    ids.forEach((_, place) => names.forEach((name) => rows.push(features[name] ? features[name][place] : 0)));
    const kept = new Map(); // of parallel edges of one type the heaviest
    for (const { from, to, weight = 1, type = "other" } of edges) {
      const number = EDGE_TYPES.indexOf(type);
      if (number < 0) throw new Error(`type must be one of ${EDGE_TYPES}, got ${type}`);
      for (const [source, target] of [[from, to], [to, from]]) {
        const key = `${source} ${target} ${model.session.inputNames.includes("edge_type") ? number : ""}`;
        if (!kept.has(key) || kept.get(key).weight < weight) kept.set(key, { source, target, weight, number });
      }
    }
    for (const { source, target, weight, number } of kept.values()) {
      sources.push(start + source); targets.push(start + target); weights.push(weight); types.push(number);
    }
    ptr.push(start + ids.length);
  }
  const count = ptr[ptr.length - 1];
  const { scores, probabilities } = await run(model, {
    base_features: { dims: [count, names.length], data: rows },
    query_vectors: { dims: [0, 0], data: [] },
    node_vectors: { dims: [0, 0], data: [] },
    edge_index: { dims: [2, weights.length], data: [...sources, ...targets] },
    edge_weight: { dims: [weights.length], data: weights },
    ptr: { dims: [ptr.length], data: ptr },
    edge_type: { dims: [types.length], data: types },
  });
  return queries.map(({ ids }, query) => {
    const ranked = ids.map((id, place) => ({
      id, score: scores[ptr[query] + place], probability: probabilities && probabilities[ptr[query] + place],
    }));
    return ranked.sort((a, b) => b.score - a.score);
  });
}

async function main(folder) {
  const model = await load(folder);
  const query = {
    ids: ["Solaris", "film director", "Paris", "Andrei Tarkovsky"],
    features: { base_score: [0.71, 0.55, 0.21, 0.34] },
    edges: [{ from: 0, to: 3, type: "reference" }],
  };
  for (const { id, score, probability } of (await rerank(model, [query]))[0]) {
    console.log(id, score.toFixed(4), probability.toFixed(4));
  }
}

if (require.main === module) main(process.argv[2]);
module.exports = { load, run, rerank };
