import { Ajv2020 } from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';
import { expect } from 'vitest';

interface Answer {
  status: number;
  type: string | null;
  body: unknown;
}
type Operation = { responses: Record<string, { content: Record<string, { schema: unknown }> }> };

let made: ReturnType<typeof make> | undefined;

/** Checks answers against /openapi.json, which is the same for each mirror. */
export const contract = (publicUrl: string) => {
  made ??= make(publicUrl);
  return made;
};

async function make(publicUrl: string) {
  const document = (await (await fetch(`${publicUrl}/openapi.json`)).json()) as {
    paths: Record<string, Record<string, Operation>>;
  };
  const ajv = new Ajv2020({ strict: false, allErrors: true });
  (addFormats as unknown as (ajv: Ajv2020) => void)(ajv);
  ajv.addSchema(document, 'openapi');
  const patterns = Object.keys(document.paths).map((path) => ({
    path,
    pattern: new RegExp(`^${path.replaceAll(/\{[^}]+\}/g, '[^/]+')}$`),
  }));

  return {
    document,

    /** @throws if the document does not describe such an answer */
    async check(method: string, address: string, { status, type, body }: Answer): Promise<void> {
      const { pathname } = new URL(address, 'http://host');
      const path = patterns.find(({ pattern }) => pattern.test(pathname))?.path;
      const operation = path && document.paths[path]![method.toLowerCase()];
      // Unknown addresses are not in the document.
      if (!operation) return expect(status, `${method} ${pathname}`).toBeGreaterThanOrEqual(400);
      const key = [String(status), `${Math.floor(status / 100)}XX`].find((it) => operation.responses[it]);
      expect(key, `${method} ${path} answered ${status}`).toBeDefined();
      const media = type!.split(';')[0]!;
      const at = ['paths', path, method.toLowerCase(), 'responses', key!, 'content', media, 'schema'];
      const pointer = at.map((part) => encodeURIComponent(part!.replaceAll('~', '~0').replaceAll('/', '~1'))).join('/');
      const validate = ajv.getSchema(`openapi#/${pointer}`);
      expect(validate, `${method} ${path} answered ${status} with ${media}`).toBeDefined();
      validate!(body);
      expect(validate!.errors ?? [], `${method} ${path} answered ${status}`).toEqual([]);
    },
  };
}
