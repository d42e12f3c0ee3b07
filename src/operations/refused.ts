import { NamedError } from '../floor/errors.ts';

/** One wrong value of a request. */
export interface WrongField {
  /** Such as `include.companyIds`. */
  field: string;
  /** A sentence. */
  detail: string;
  value?: string;
  /** What `value` may be; absent: unknown at present. */
  known?: { id: string; name: string }[];
}

/** A request that cannot be done: unknown id, wrong value, or wrong state. `code` is stable. */
export class Refused extends NamedError {
  readonly status: number;
  readonly code: string;
  readonly errors: WrongField[] | undefined;

  constructor(status: number, code: string, message: string, errors?: WrongField[]) {
    super(message);
    this.status = status;
    this.code = code;
    this.errors = errors;
  }
}
