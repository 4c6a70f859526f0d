// Makes elements. Texts come from strangers (names of hosts, lines of logs): they are only ever set
// as text, and never parsed as markup.
const SVG = "http://www.w3.org/2000/svg";

function made(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}

export const el = (tag, attributes = {}, ...children) =>
  made(document.createElement(tag), attributes, children);

export const svg = (tag, attributes = {}, ...children) =>
  made(document.createElementNS(SVG, tag), attributes, children);

// Sets a text only where it differs, so that a selection stays.
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// Draws the last minute as a line below which it is filled. The largest value is at the top.
export function spark(values, label) {
  const width = 120, height = 24, top = Math.max(...values, 1), step = width / 59;
  const points = values.map((value, at) => {
    const x = width - (values.length - 1 - at) * step;
    return `${x.toFixed(1)},${(height - 1 - (value / top) * (height - 3)).toFixed(1)}`;
  });
  const first = points.length ? points[0].split(",")[0] : "0";
  return svg(
    "svg",
    { class: "spark", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": label },
    svg("line", { x1: 0, x2: width, y1: height - 1, y2: height - 1, stroke: "currentColor", "stroke-opacity": 0.3 }),
    points.length < 2 ? null : svg("polygon", { points: `${first},${height - 1} ${points.join(" ")} ${width},${height - 1}`, fill: "currentColor", "fill-opacity": 0.18 }),
    points.length < 2 ? null : svg("polyline", { points: points.join(" "), fill: "none", stroke: "currentColor", "stroke-width": 1.5, "vector-effect": "non-scaling-stroke" }),
  );
}
