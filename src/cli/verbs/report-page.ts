import { formatBytes } from '../../floor/units.ts';
import type { MonthReport } from '../../operations/assurance/assurance-report.ts';
import type { Answer } from '../answers.ts';
import { counted, number } from '../output.ts';

/** The report as one page without scripts and other files, for screens and for paper. */
export function reportPage(report: MonthReport, signed: Answer<'assuranceReport'>): string {
  const { month, isMonthOver, connection, from, to, madeAt, madeBy, mirrorId, now } = report;
  const of = connection ? `${connection.userName} (${connection.userEmail})` : 'all connections';
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Assurance report ${month}</title>
<style>${style}</style>
</head>
<body>
<main>
<h1>Assurance report <span>${monthName(month)}</span></h1>
<p>Of <b>${safe(of)}</b>, in <code>${safe(now.storage)}</code></p>
${facts([
  [
    'Period',
    `${at(from)} to ${at(to)}${isMonthOver ? '' : '<br><strong>The month is not over: this report has only a part of it.</strong>'}`,
  ],
  ['Made', `${at(madeAt)}, by ${safe(madeBy)}`],
  ['Mirror', `<code>${safe(mirrorId ?? 'unknown')}</code>`],
  ...(connection ? [['Connection', `<code>${safe(connection.id)}</code>`] as Fact] : []),
  [
    'Signature',
    signed.keyId ? `Ed25519, by the key <code>${signed.keyId}</code>` : '<strong>This report is not signed.</strong>',
  ],
  ['SHA-256 of the report', `<code>${signed.sha256}</code>`],
])}
<p>${howToCheck(signed)}</p>
${stateNow(report)}
${findings(report)}
${missing(report)}
${inMonth(report)}
${inventories(report)}
${verifications(report)}
${drills(report)}
<footer>This page shows the report in the .json file next to it. That file is signed, this page is not. All times are UTC.</footer>
</main>
</body>
</html>
`;
}

type Fact = [string, string];

const safe = (text: string) => text.replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);
const howTo = 'https://github.com/asset-mirror/asset-mirror/blob/main/docs/operate/assurance.md#check-a-report';
const howToCheck = ({ keyId }: Answer<'assuranceReport'>) =>
  keyId === null
    ? `<a href="${howTo}">How to sign reports</a>`
    : `To check the signature, and that the key is the one of the operator: <a href="${howTo}">${howTo}</a>`;
const whole = (text: string) => `<span class="whole">${text}</span>`;
/** A text whose dates are not split over two lines. */
const sentence = (text: string) => safe(text).replace(/\d{4}-\d\d-\d\d/g, whole);
const at = (time: string | null) => (time === null ? 'never' : whole(`${time.slice(0, 10)} ${time.slice(11, 19)}`));
const monthName = (month: string) =>
  new Intl.DateTimeFormat('en', { month: 'long', year: 'numeric', timeZone: 'UTC' }).format(
    new Date(`${month}-01T00:00:00Z`),
  );
const facts = (list: Fact[]) =>
  `<dl>${list.map(([name, value]) => `<div><dt>${name}</dt><dd>${value}</dd></div>`).join('')}</dl>`;
const table = (heads: string[], rows: string[][]) =>
  `<table><thead><tr>${heads.map((head) => `<th scope="col">${head}</th>`).join('')}</tr></thead><tbody>${rows
    .map(
      ([first, ...rest]) => `<tr><th scope="row">${first}</th>${rest.map((cell) => `<td>${cell}</td>`).join('')}</tr>`,
    )
    .join('')}</tbody></table>`;
/** `problem`: what is known to be wrong. */
const mark = (ok: boolean, problem: string | null) =>
  ok ? '<i class="good">Good</i>' : problem ? `<i class="bad">${problem}</i>` : '<i class="check">Check</i>';

const stateNow = ({ now, connection }: MonthReport) =>
  `<section><h2>The state on ${at(now.at)}</h2>${table(
    ['Question', 'State', 'Answer', 'As of'],
    now.questions.map(({ question, ok, problem, text, at: time, note }) => [
      question,
      mark(ok, problem),
      sentence(text),
      `${at(time)}${note ? `<br>${note}` : ''}`,
    ]),
  )}${connection ? '<p>Inventory and restore drill are of the whole mirror.</p>' : ''}</section>`;

function findings({ now: { findings: found } }: MonthReport): string {
  if (found.objects === 0) return '';
  const { examples } = found;
  const others =
    found.objects > examples.length ? `<p>The ${examples.length} newest of ${number(found.objects)}.</p>` : '';
  return `<section><h2>Problems in the bucket that are not repaired yet</h2>${others}${table(
    ['Object', 'Finding', 'Found', 'By'],
    examples.map(({ key, text, at: time, verificationId }) => [
      `<code>${safe(key)}</code>`,
      safe(text),
      at(time),
      verificationId === null
        ? 'the scrub'
        : `verification <code class="whole">${safe(verificationId.slice(0, 8))}…</code>`,
    ]),
  )}</section>`;
}

const missing = ({ now: { completeness } }: MonthReport) =>
  completeness.missing.length === 0
    ? ''
    : `<section><h2>What is missing, and why</h2>${table(
        ['State', 'Reason', 'Assets', 'Size', 'Since'],
        completeness.missing.map(({ state, skipped, reason, assets, bytes, unknownSize, since }) => [
          skipped ? 'skipped by filters' : state,
          safe(reason?.text ?? 'to be transferred') + (reason && assets > 1 ? ' (reason of one of them)' : ''),
          number(assets),
          whole(unknownSize < assets ? formatBytes(bytes) : 'unknown'),
          at(since),
        ]),
      )}</section>`;

const inMonth = ({ inMonth: of, from }: MonthReport) =>
  `<section><h2>In the month</h2>${facts([
    ['Mirrored', `${counted(of.mirrored, 'asset')}, ${formatBytes(of.bytes)}`],
    of.replaced === null
      ? ['Replaced by another file', 'unknown']
      : [
          `Replaced by another file${of.replacedSince > from ? `, since ${at(of.replacedSince)}` : ''}`,
          counted(of.replaced, 'asset'),
        ],
    ['Deleted in the library', counted(of.gone, 'asset')],
    ...(of.erased === null ? [] : [['Erased on purpose', counted(of.erased, 'asset')] as Fact]),
  ])}</section>`;

function inventories({ inventories: all, lastInventory, firstKnownInventory: first, from }: MonthReport): string {
  const isKnown = first !== null && (first.number === 1 || first.day < from.slice(0, 10));
  const unknown = isKnown
    ? ''
    : `<p>The database has ${first ? `all inventories from number ${first.number} (${first.day}) on` : 'no inventories'}. Any others are in the bucket, below <code>_mirror/manifests/</code>.</p>`;
  if (all.length === 0)
    return `<section><h2>Inventories</h2>${unknown || '<p>None was written in this month.</p>'}</section>`;
  const last = lastInventory
    ? `<p>The last one states ${counted(lastInventory.assets, 'asset')} of the whole mirror, ${number(lastInventory.objects)} objects and ${formatBytes(lastInventory.bytes)}.</p>`
    : '';
  return `<section><h2>Inventories</h2>${unknown}${last}${table(
    ['Day', 'Number', 'SHA-256 of the manifest', 'Key'],
    all.map(({ day, number: n, sha256, keyId }) => [
      whole(day),
      String(n),
      `<code>${sha256}</code>`,
      keyId ? `<code class="whole">${keyId.slice(0, 16)}…</code>` : 'not signed',
    ]),
  )}</section>`;
}

const verifications = ({ verifications: all }: MonthReport) =>
  `<section><h2>Verifications</h2><p>Those that the database still has. It deletes old ones, and a rebuilt one has none from before.</p>${
    all.length === 0
      ? '<p>None ended in this month.</p>'
      : table(
          ['Ended', 'State', 'What was compared', 'Found'],
          all.map(({ finishedAt, status, differences, connectionId, deep, routine, counts }) => [
            at(finishedAt),
            status === 'failed'
              ? mark(false, 'Failed')
              : mark(differences === 0, `${number(differences)} difference${differences === 1 ? '' : 's'}`),
            `${deep ? 'Every byte' : 'Sizes and ETags'}${connectionId === null ? '' : ` of connection <code class="whole">${safe(connectionId)}</code>`}${routine ? ', scheduled' : ''}`,
            status === 'failed' ? '–' : foundIn(counts),
          ]),
        )
  }</section>`;

function foundIn({ missing, different, errors, foreign, repaired }: MonthReport['verifications'][number]['counts']) {
  const found = Object.entries({ missing, different, unreadable: errors, 'in no record': foreign })
    .filter(([, count]) => count > 0)
    .map(([name, count]) => `${number(count)} ${name}`);
  if (repaired > 0) found.push(`repair of ${counted(repaired, 'asset')} begun`);
  return found.join(', ') || 'nothing';
}

const drills = ({ drills: all }: MonthReport) =>
  all.length === 0
    ? '<section><h2>Restore drills</h2><p>The database knows none that ended in this month.</p></section>'
    : `<section><h2>Restore drills</h2>${table(
        ['Ended', 'State', 'Result', 'Report in the bucket'],
        all.map((drill) => [
          at(drill.finishedAt),
          drill.status === 'passed' ? '<i class="good">Passed</i>' : mark(false, 'Failed'),
          safe(drill.text ?? ''),
          drill.key ? `<code class="whole">${safe(drill.key)}</code>` : '–',
        ]),
      )}</section>`;

const style = `
:root{color-scheme:light dark;--ink:#18202b;--soft:#586474;--paper:#fff;--line:#d5dbe3;--good:#0e7345;--check:#8f5a00;--bad:#b3261e}
@media (prefers-color-scheme:dark){:root{--ink:#e7ebf0;--soft:#9da9b8;--paper:#101419;--line:#2a323c;--good:#56c795;--check:#e3b15c;--bad:#ff8f85}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,"DejaVu Sans",sans-serif;overflow-wrap:break-word}
main{max-width:60rem;margin:0 auto;padding:2rem 1rem}
h1{font-size:1.5rem;margin:0;line-height:1.25}h1 span{font-weight:400;white-space:nowrap}
.whole{white-space:nowrap}a{color:inherit;overflow-wrap:anywhere}
h2{font-size:1.1rem;margin:2rem 0 .5rem}
p{margin:.25rem 0}
code{overflow-wrap:anywhere;font:.8125em/1.5 ui-monospace,"DejaVu Sans Mono",monospace}
dl{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,18rem),1fr));gap:.75rem 1.5rem;margin:1rem 0}
dt,thead th,footer{color:var(--soft);font-size:.8125rem;font-weight:400}
dd{margin:0}
table{width:100%;border-collapse:collapse;font-size:.9375rem}
th,td{text-align:left;vertical-align:top;padding:.4rem .75rem .4rem 0;border-top:1px solid var(--line);font-weight:400}
thead th{border-top:0}tbody th{font-weight:600}
i{font-style:normal;font-weight:600}.good{color:var(--good)}.check{color:var(--check)}.bad{color:var(--bad)}
footer{margin-top:2rem;border-top:1px solid var(--line);padding-top:.75rem}
@media screen and (max-width:40rem){.whole{white-space:normal}}
@page{margin:15mm}
@media print{:root{color-scheme:light;--ink:#000;--soft:#444;--paper:#fff;--line:#bbb;--good:#0e5a37;--check:#7a4d00;--bad:#9c231a}
body{font-size:10pt}main{padding:0;max-width:none}tr,dl div{break-inside:avoid}h2,h2+p,thead{break-after:avoid}tbody tr:first-child{break-before:avoid}
th,td{padding:.3rem .6rem .3rem 0}td code{font-size:7pt}}
`;
