// Checks the import rules, and writes the module graph and the table of rules into CONTRIBUTING.md: `npm run graph`. With --check,
// only compares them.
import { readFile, writeFile } from 'node:fs/promises';
import { cruise, format } from 'dependency-cruiser';
import rules, { modules } from './.dependency-cruiser.mjs';

const moduleOf = (path) => /^src\/([^/]+)\//.exec(path)?.[1];

/** The imports between modules, as source has them. */
function importsOf(files) {
  const imports = new Map();
  for (const { source, dependencies } of files) {
    const from = moduleOf(source);
    for (const { resolved } of dependencies) {
      const to = moduleOf(resolved);
      if (from && to && from !== to && to !== 'floor') imports.set(from, (imports.get(from) ?? new Set()).add(to));
    }
  }
  return imports;
}

/** Whether a module is reached from another one by way of a third. */
function isIndirect(imports, from, to) {
  const reaches = (start) => start === to || [...(imports.get(start) ?? [])].some(reaches);
  return [...imports.get(from)].some((next) => next !== to && reaches(next));
}

const { forbidden, options } = rules;
const { output: found } = await cruise(['src'], { ...options, validate: true, ruleSet: { forbidden } });
const violations = await format(found, { outputType: 'err' });
console.log(violations.output);
if (violations.exitCode > 0) process.exit(1);

const imports = importsOf(found.modules);
const arrows = [...imports].flatMap(([from, targets]) =>
  [...targets].filter((to) => !isIndirect(imports, from, to)).map((to) => `  ${from} --> ${to}`),
);
/** A Markdown table with aligned columns. */
function table([head, ...rows]) {
  const widths = head.map((_, i) => Math.max(...[head, ...rows].map((cells) => cells[i].length)));
  const line = (cells) => `| ${cells.map((cell, i) => cell.padEnd(widths[i])).join(' | ')} |`;
  return [line(head), line(widths.map((width) => '-'.repeat(width))), ...rows.map(line)].join('\n');
}

const rows = Object.entries(modules).map(([name, [allowed, reason]]) => [
  `\`${name}\``,
  allowed.join(', ') || '–',
  reason,
]);
const generated = `\`\`\`mermaid
flowchart TD
${arrows.sort().join('\n')}
\`\`\`

${table([['module', 'may import', 'because it'], ...rows])}
`;
const file = 'CONTRIBUTING.md';
const text = await readFile(file, 'utf8');
const [start, end] = ['<!-- modules: written by npm run graph -->\n', '<!-- end of modules -->'];
const current = text.slice(0, text.indexOf(start) + start.length) + generated + text.slice(text.indexOf(end));
if (!process.argv.includes('--check')) await writeFile(file, current);
else if (current !== text) {
  console.error(`${file} does not show the current modules. Run npm run graph.`);
  process.exitCode = 1;
}
