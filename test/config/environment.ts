import { expect } from 'vitest';
import { readConfig } from '../../src/config/config.ts';
import { ConfigurationError } from '../../src/floor/errors.ts';

/** The variables without a default. */
export const required = {
  LIBRARY_API_URL: 'https://api.example.com',
  LIBRARY_APP_URL: 'https://app.example.com',
  LIBRARY_CLIENT_ID: 'the id',
  LIBRARY_CLIENT_SECRET: 'the secret',
};

/** A key of 32 equal bytes. */
export const key = (byte: number) => Buffer.alloc(32, byte);
export const minute = 60_000;
export const hour = 60 * minute;

export type Environment = Record<string, string | undefined>;
/** The configuration for an environment that also has the required variables. */
export const read = (environment: Environment = {}) => readConfig({ ...required, ...environment });

/** The sentences of the error for an environment. */
export function problemsOf(environment: Environment, readIt: (environment: Environment) => unknown = readConfig) {
  try {
    readIt(environment);
  } catch (error) {
    expect(error).toBeInstanceOf(ConfigurationError);
    return (error as ConfigurationError).problems;
  }
  throw new Error('it was taken');
}

/** The sentence of the error for one wrong value. */
export const problemOf = (name: string, value: string) => {
  const problems = problemsOf({ ...required, [name]: value });
  expect(problems).toHaveLength(1);
  return problems[0]!;
};
