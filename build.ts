import { cpSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { stripTypeScriptTypes } from 'node:module';
import { dirname, join } from 'node:path';

/**
 * Makes `dist` of `src`, for packages and images: Node does not take types off what lies in node_modules. It is Node itself
 * that takes them off here, so what runs is what runs in a clone, line by line, and nothing has to be installed for it. File by
 * file: what looks a file up next to itself, or looks into a module as tracing does, finds the same as in a clone.
 */
const [source, target] = ['src', 'dist'].map((name) => join(import.meta.dirname, name)) as [string, string];
/** Of the path in `import … from './path.ts'`, `export … from`, and `import('./path.ts')`. */
const ending = /(?<=\b(?:from |import |import\()'\.[^'\n]*)\.ts(?=')/g;
/** What only compilers and readers of the source look at. */
const aside = /\.d\.ts$|tsconfig\.json$|\.md$/;

rmSync(target, { recursive: true, force: true });
for (const path of readdirSync(source, { recursive: true }) as string[]) {
  if (!/\.\w+$/.test(path) || aside.test(path)) continue;
  const [from, to] = [join(source, path), join(target, path.replace(/\.ts$/, '.js'))];
  mkdirSync(dirname(to), { recursive: true });
  if (!path.endsWith('.ts')) cpSync(from, to);
  else writeFileSync(to, stripTypeScriptTypes(readFileSync(from, 'utf8')).replace(ending, '.js'));
}
