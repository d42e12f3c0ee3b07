import { safeFilename } from '../storage/keys.ts';

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
  if (/[{}]/.test(template.replace(/\{[^{}]*\}/g, ''))) return 'A brace has no counterpart.';
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
  // A slash in a name is not a folder.
  const plain = (text: string) => text.replace(/\//g, '_');
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

/** Makes names unique, ignoring case, as some file systems do: a name that is taken gets the asset's id. */
export class UniqueNames {
  readonly #taken = new Set<string>();

  /** `suffixes`: of all files that the name is for. */
  of(name: string, id: string, suffixes: string[]): string {
    for (let n = 0; ; n++) {
      const unique = n === 0 ? name : marked(name, n === 1 ? id : `${id} ${n}`);
      const keys = suffixes.map((suffix) => `${unique}${suffix}`.toLowerCase());
      if (keys.some((key) => this.#taken.has(key))) continue;
      for (const key of keys) this.#taken.add(key);
      return unique;
    }
  }
}

/** `folder/name (mark).ext` */
function marked(path: string, mark: string): string {
  const folder = path.slice(0, path.lastIndexOf('/') + 1);
  const name = path.slice(folder.length);
  const extension = /(?<=.)\.[^.\s]{1,32}$/.exec(name)?.[0] ?? '';
  const stem = name.slice(0, name.length - extension.length);
  const suffix = ` (${mark})${extension}`;
  return folder + safeFilename(stem, undefined, mostBytes - Buffer.byteLength(suffix)) + safeSuffix(suffix);
}

/** Ids may contain anything. */
const safeSuffix = (suffix: string) => suffix.replace(/[/\\\p{Cc}]/gu, '_');
