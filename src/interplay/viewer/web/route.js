// The address after the # is the place in the viewer, so every view has a link: #/run/demo/episode?step=3&id=…
import { useEffect, useRef, useState } from "preact/hooks";

// An address that a person typed may contain a % that is not part of an escape.
export function decoded(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}

export function parse(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?");
  return {
    parts: path.split("/").filter(Boolean).map(decoded),
    query: Object.fromEntries(new URLSearchParams(query)),
  };
}

export function link(parts, query = {}) {
  const given = Object.entries(query).filter(([, v]) => v !== undefined && v !== null && v !== "");
  const text = new URLSearchParams(given).toString();
  return `#/${parts.map(encodeURIComponent).join("/")}${text ? "?" + text : ""}`;
}

export function useRoute() {
  const [route, set] = useState(() => parse(location.hash));
  useEffect(() => {
    const moved = () => set(parse(location.hash));
    addEventListener("hashchange", moved);
    return () => removeEventListener("hashchange", moved);
  }, []);
  return route;
}

export function go(parts, query, replace = false) {
  const to = link(parts, query);
  if (replace) { history.replaceState(null, "", to); dispatchEvent(new HashChangeEvent("hashchange")); }
  else location.hash = to.slice(1);
}

// Change some of the query of the present place.
export function adjust(changes, replace = true) {
  const { parts, query } = parse(location.hash);
  go(parts, { ...query, ...changes }, replace);
}

// Keys of the page. A key does nothing while a text field or a list of choices has the focus. Check boxes do not count.
export function useKeys(table) {
  const now = useRef(table);
  now.current = table; // set while the page is drawn, so that a key pressed at once finds what was just chosen
  useEffect(() => {
    const pressed = (event) => {
      const field = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName) && event.target.type !== "checkbox";
      if (event.ctrlKey || event.metaKey || event.altKey || (field && event.key !== "Escape")) return;
      const action = now.current[event.key];
      if (action) { event.preventDefault(); action(); }
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
}
