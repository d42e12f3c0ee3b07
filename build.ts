import { cpSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { stripTypeScriptTypes } from 'node:module';
import { dirname, join } from 'node:path';

/**
 * Writes `src` without types to `dist`, for packages and images: Node does not strip types below node_modules. Node's own function
 * strips them, so each line runs as in a clone, and no compiler is needed. Files are not bundled, because some load files beside them
 * and tracing patches modules.
 */
const [source, target] = ['src', 'dist'].map((name) => join(import.meta.dirname, name)) as [string, string];
/** The `.ts` of a path in `import … from './path.ts'`, `export … from` and `import('./path.ts')`. */
const ending = /(?<=\b(?:from |import |import\()'\.[^'\n]*)\.ts(?=')/g;
/** Files for compilers and readers of the source. */
const unused = /\.d\.ts$|tsconfig\.json$|\.md$/;

rmSync(target, { recursive: true, force: true });
for (const path of readdirSync(source, { recursive: true }) as string[]) {
  if (!/\.\w+$/.test(path) || unused.test(path)) continue;
  const [from, to] = [join(source, path), join(target, path.replace(/\.ts$/, '.js'))];
  mkdirSync(dirname(to), { recursive: true });
  if (!path.endsWith('.ts')) cpSync(from, to);
  else writeFileSync(to, stripTypeScriptTypes(readFileSync(from, 'utf8')).replace(ending, '.js'));
}
