// Bulk builds: how much of each is published, and imported by each subscriber.
import { part } from "./api.js";
import { bar, bytes, fact, h, number, pending, state, subscriberLink, table, time } from "./dom.js";

const done = (build) => build.subscribers.reduce((sum, each) => sum + each.imported, 0);
const wanted = (build) => build.subscribers.length * build.published;
const share = (part, whole) => (whole ? `${Math.floor((100 * part) / whole)} %` : "–");

export function builds(app) {
  const page = app.loaded("builds", "/builds");
  const rows = (page.data ?? []).map((build) => ({ key: `${build.publisher} ${build.build_id}`, cells: [ // two publishers may use one id
    state(build.state), h("a", { href: `#/builds/${part(build.build_id)}` }, build.build_id), build.publisher,
    [`${number(build.published)} of ${number(build.total)}`, bar([["busy", build.published]], build.total)],
    [share(done(build), wanted(build)), bar([["ok", done(build)]], wanted(build))], bytes(build.package_bytes), time(build.last_published_at)] }));
  return [h("h1", null, "Bulk builds"), h("section", null, page.data
    ? table("Bulk builds", [["State", "s"], ["Build", ""], ["Publisher", "wide"], ["Published", "n lag"], ["Imported", "n lag"], ["Size", "n wide"], ["Last package", "wide"]], rows, "The journal holds no packages of bulk builds.") : pending(page))];
}

export function build(app, id) {
  const page = app.loaded(`build ${id}`, `/builds/${part(id)}`);
  const known = page.data;
  if (!known) return [h("h1", null, `Build ${id}`), h("section", null, pending(page))];
  const rows = known.subscribers.map((each) => ({ key: each.name, cells: [
    state(each.state), subscriberLink(each.name), [number(each.imported), bar([["ok", each.imported], ["warn", each.skipped + each.dropped], ["bad", each.given_up], ["idle", each.unknown]], known.published)],
    number(each.pending), number(each.skipped), number(each.dropped), number(each.given_up), number(each.unknown)] }));
  return [
    h("h1", null, known.build_id, state(known.state)),
    h("section", null, h("dl", null, fact("Publisher", known.publisher), fact("Published", `${number(known.published)} of ${number(known.total)} packages, ${bytes(known.package_bytes)}`),
      fact("Offsets", `${number(known.first_offset)} to ${number(known.last_offset)}`), fact("First package", time(known.first_published_at)), fact("Last package", time(known.last_published_at)))),
    h("section", null, h("h2", null, "Subscribers"), table("Subscribers of the build", [["State", "s"], ["Name", ""], ["Imported", "n lag"], ["Pending", "n"], ["Skipped", "n wide"], ["Dropped", "n wide"], ["Given up", "n"], ["Unknown", "n wide"]],
      rows, "No subscriber follows the publisher.")),
  ];
}
