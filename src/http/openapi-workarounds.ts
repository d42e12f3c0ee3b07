/** Corrections of the description that @fastify/swagger and fastify-type-provider-zod make. */

/** @fastify/swagger marks every body as required. A body that may be null may also be absent. */
export function withOptionalBodies(description: object): object {
  const { paths } = description as { paths: Record<string, Record<string, { requestBody?: Body }>> };
  for (const { requestBody } of Object.values(paths).flatMap((path) => Object.values(path))) {
    const { anyOf = [] } = requestBody?.content['application/json']?.schema ?? {};
    if (requestBody && anyOf.some(({ type }) => type === 'null')) requestBody.required = false;
  }
  return description;
}

/**
 * fastify-type-provider-zod describes each schema twice: for input, with `Input` at the end of its name, and for output. Keeps
 * the used ones, without `Input` if both are not needed.
 */
export function withUsedSchemas(description: object): object {
  const { components } = description as { components: { schemas: Record<string, object> } };
  const refs = (part: unknown) =>
    [...JSON.stringify(part).matchAll(/"#\/components\/schemas\/(\w+)"/g)].map(([, name]) => name!);
  const used = new Set(refs((description as { paths: object }).paths));
  for (const name of used) for (const inner of refs(components.schemas[name])) used.add(inner);
  const schemas = Object.fromEntries(Object.entries(components.schemas).filter(([name]) => used.has(name)));
  const json = JSON.stringify({ ...description, components: { ...components, schemas } });
  const renamed = [...used].filter((name) => name.endsWith('Input') && !used.has(name.slice(0, -'Input'.length)));
  return JSON.parse(
    renamed.reduce((text, name) => {
      const plain = name.slice(0, -'Input'.length);
      return text.replaceAll(`/${name}"`, `/${plain}"`).replaceAll(`"${name}":`, `"${plain}":`);
    }, json),
  );
}

interface Body {
  required: boolean;
  content: Record<string, { schema: { anyOf?: { type?: string }[] } }>;
}
