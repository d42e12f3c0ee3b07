/** Waits for a condition (nothing, false, 0 and '' are none), and says what it waited for when it never comes. */
export async function until<T>(
  what: string,
  condition: () => T | null | undefined | false | Promise<T | null | undefined | false>,
  timeoutMs = 60_000,
): Promise<T> {
  const deadline = Date.now() + timeoutMs;
  // Less and less often: each look costs time that what is awaited may need.
  for (let pauseMs = 10; ; pauseMs = Math.min(pauseMs * 1.3, 100)) {
    const value = await condition();
    if (value) return value;
    if (Date.now() > deadline) throw new Error(`waited ${timeoutMs} ms for: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, pauseMs));
  }
}
