// Code of the last request, for a terminal and for Python.
const KEY = "GRAPHRERANK_API_KEY";

export function curl(origin, { path, body }, hasKey) {
  const json = JSON.stringify(body, null, 1).replaceAll("'", "'\\''");
  const authorization = hasKey ? ` \\\n  -H "authorization: Bearer $${KEY}"` : "";
  return `curl ${origin}${path} -H 'content-type: application/json'${authorization} -d '${json}'`;
}

export function python(origin, { path, body }, hasKey) {
  const lines = [
    "import json", ...(hasKey ? ["import os"] : []), "from urllib.request import Request, urlopen", "",
    `body = json.loads(${raw(JSON.stringify(body, null, 1))})`,
    'headers = {"content-type": "application/json"}',
    ...(hasKey ? [`headers["authorization"] = "Bearer " + os.environ["${KEY}"]`] : []),
    `request = Request("${origin}${path}", json.dumps(body).encode(), headers)`,
    "for result in json.load(urlopen(request))[\"results\"]:",
    "    print(result)",
  ];
  return lines.join("\n");
}

/** Return a text as a Python literal, as a raw string if possible. */
function raw(text) {
  return /'''|\\$|\r/.test(text) ? JSON.stringify(text) : `r'''${text}'''`;
}
