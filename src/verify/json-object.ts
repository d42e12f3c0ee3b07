/** The object that a text has as JSON; its fields may be anything. Undefined: the text is no JSON, or no object. */
export function parseObject<T>(content: string): Partial<T> | undefined {
  try {
    const value: unknown = JSON.parse(content);
    return typeof value === 'object' && value !== null ? (value as Partial<T>) : undefined;
  } catch {
    return undefined;
  }
}
