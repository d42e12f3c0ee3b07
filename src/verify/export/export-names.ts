import { createHash } from 'node:crypto';
import { safeFilename } from '../../storage/keys.ts';

/** The manifest at the target of an export. */
export const manifestName = 'manifest.csv';
/** In an archive: the assets that are not in it. */
export const missingName = 'not-included.csv';

/** What a name can be made of. */
export interface NameParts {
  id: string;
  name: string | null;
  /** The last segment of the key, with the extension of the file. */
  filename: string;
  type: string | null;
  company: string;
  companyId: string;
  project: string | null;
  projectId: string | null;
  /** Epoch milliseconds. */
  uploadDate: number | null;
}

const placeholders = ['id', 'name', 'type', 'company', 'companyId', 'project', 'projectId', 'uploadDate'] as const;

/** Maximum bytes of a segment: most file systems allow 255. */
const mostBytes = 200;

/** What is wrong with a template; undefined: nothing. */
export function wrongTemplate(template: string): string | undefined {
  const unknown = [...template.matchAll(/\{([^{}]*)\}/g)]
    .map(([, inside]) => inside!)
    .find((inside) => {
      const [name, format] = split(inside);
      if (format !== undefined) return name !== 'uploadDate' || !/^[yMd_.\- ]+$/.test(format);
      return !placeholders.some((each) => each === name);
    });
  if (unknown !== undefined)
    return `{${unknown}} is not a placeholder. There are ${placeholders.map((name) => `{${name}}`).join(', ')} and {uploadDate:yyyy-MM-dd}.`;
  if (/[{}]/.test(template.replace(/\{[^{}]*\}/g, ''))) return 'A brace is not closed, or not opened.';
  if (!/\{(name|id)\}[^/]*$/.test(template)) return 'It must end with {name} or {id}.';
  return template.startsWith('/') ? 'It must not begin with a slash.' : undefined;
}

/** Fills a template. Each segment is a safe file name. */
export function nameOf(template: string, parts: NameParts): string {
  const segments = template.split('/');
  const last = segments.length - 1;
  return segments
    .map((segment, index) => {
      const filled = segment.replace(/\{([^{}]*)\}/g, (_, inside: string) => valueIn(inside, parts));
      return safeFilename(index === last ? withExtension(filled, parts.filename) : filled, undefined, mostBytes);
    })
    .join('/');
}

function valueIn(inside: string, parts: NameParts): string {
  const [name, format] = split(inside);
  // A slash in a name is not a folder, and `A:` is no drive.
  const plain = (text: string) => text.replace(/[/:]/g, '_');
  switch (name) {
    case 'uploadDate':
      return parts.uploadDate === null ? 'No date' : dated(parts.uploadDate, format ?? 'yyyy-MM-dd');
    case 'project':
      return plain(parts.project ?? parts.projectId ?? 'No project');
    case 'name':
      return plain(parts.name ?? parts.filename);
    default:
      return plain(parts[name as 'id' | 'type' | 'company' | 'companyId' | 'projectId'] ?? `No ${name}`);
  }
}

const split = (inside: string): [string, string?] => inside.split(/:(.*)/, 2) as [string, string?];

function dated(ms: number, format: string): string {
  const at = new Date(ms);
  if (Number.isNaN(at.getTime())) return 'No date';
  const [year, month, day] = at
    .toISOString()
    .split('T')[0]!
    .split(/(?<=\d)-/);
  return format.replace(/yyyy/g, year!).replace(/MM/g, month!).replace(/dd/g, day!);
}

/** The extension of the file in the bucket: a rendition is an .mp4, also if the name says .mov. */
function withExtension(name: string, filename: string): string {
  const extension = /\.[^.\s]{1,32}$/.exec(filename)?.[0] ?? '';
  return name.toLowerCase().endsWith(extension.toLowerCase()) ? name : name + extension;
}

/**
 * Makes names unique, ignoring case, as some file systems do: a name that is taken gets the asset's id. Folders that differ only in
 * case are one: the first spelling counts.
 */
export class UniqueNames {
  readonly #taken = new Set([manifestName, missingName].map(folded));
  readonly #folders = new Map<string, string>();

  /** `suffixes`: of all files that the name is for. */
  of(name: string, id: string, suffixes: string[]): string {
    const [file = '', ...folders] = name.split('/').reverse();
    const folder = this.#spelled(folders.reverse());
    for (let n = 0; ; n++) {
      const unique = folder + (n === 0 ? file : withMark(file, n === 1 ? id : `${shortened(id)} ${n}`));
      const keys = suffixes.map((suffix) => folded(`${unique}${suffix}`));
      if (keys.some((key) => this.#taken.has(key))) continue;
      for (const key of keys) this.#taken.add(key);
      return unique;
    }
  }

  #spelled(segments: string[]): string {
    let path = '';
    for (const segment of segments) {
      const wanted = `${path}${segment}/`;
      const known = this.#folders.get(folded(wanted));
      if (known === undefined) this.#folders.set(folded(wanted), wanted);
      path = known ?? wanted;
    }
    return path;
  }
}

/** The result is equal for names that a file system without letter case takes for one. */
const folded = (path: string) => path.normalize('NFC').toUpperCase().toLowerCase();

/** `name (mark).ext` */
function withMark(name: string, mark: string): string {
  const extension = /(?<=.)\.[^.\s]{1,32}$/.exec(name)?.[0] ?? '';
  const stem = name.slice(0, name.length - extension.length);
  const suffix = ` (${shortened(mark)})${extension}`;
  return safeFilename(stem, undefined, mostBytes - Buffer.byteLength(suffix)) + suffix;
}

/** Ids may contain anything, and be long. */
const shortened = (id: string) =>
  Buffer.byteLength(id) <= 60 && id.isWellFormed()
    ? id.replace(/[/\\:\p{Cc}]/gu, '_')
    : createHash('sha256').update(id, 'utf16le').digest('hex').slice(0, 16);
