import { expect } from 'vitest';
import { contract } from '../support/contract.ts';
import type { Stage } from '../support/stage.ts';

/** Asks the API of a stage as an operator, and checks the answers against the contract. The stage is made before the tests. */
export function asking(stage: () => Stage) {
  return async function ask(
    method: string,
    path: string,
    options: { body?: string; headers?: Record<string, string> } = {},
  ) {
    const { body, headers } = options;
    const response = await fetch(stage().ground.publicUrl + path, {
      method,
      headers: {
        authorization: 'Bearer the-token-of-the-operators',
        ...(body !== undefined && { 'content-type': 'application/json' }),
        ...headers,
      },
      ...(body !== undefined && { body }),
    });
    const text = await response.text();
    const answer = {
      status: response.status,
      type: response.headers.get('content-type'),
      challenge: response.headers.get('www-authenticate'),
      // biome-ignore lint/suspicious/noExplicitAny: tests say what they expect
      body: (text === '' ? undefined : JSON.parse(text)) as any,
    };
    await (await contract(stage().ground.publicUrl)).check(method, path, answer);
    return answer;
  };
}

/** How a problem is answered. */
export const problem = (status: number, code: string, detail: unknown = expect.any(String)) => ({
  status,
  type: expect.stringMatching(/^application\/problem\+json/),
  body: {
    type: expect.stringMatching(/docs\/reference\/api\.md#problems$/),
    title: expect.any(String),
    status,
    code,
    detail,
    requestId: expect.any(String),
  },
});
