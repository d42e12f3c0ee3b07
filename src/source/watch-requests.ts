import type { Dispatcher } from 'undici';

/** A request to the library and the status of its answer. */
export interface RequestResult {
  /** An endpoint of the spec, section 4; `link`: a signed link; `other`: any other address of the API. */
  endpoint: string;
  /** `unanswered`: no answer came. `aborted`: the caller stopped waiting. */
  status: number | 'unanswered' | 'aborted';
  /** From the request to the head of the answer, or to the failure. */
  ms: number;
}

const endpoints: [RegExp, string][] = [
  [/^\/api\/oauth\/token$/, 'token'],
  [/^\/api\/oauth\/revoke$/, 'revoke'],
  [/^\/api\/v1\/me$/, 'me'],
  [/^\/api\/v1\/companies\/[^/]+\/projects$/, 'projects'],
  [/^\/api\/v1\/companies\/[^/]+\/assets$/, 'assets'],
  [/^\/api\/v1\/assets\/[^/]+$/, 'asset'],
  [/^\/api\/v1\/assets\/[^/]+\/transcript$/, 'transcript'],
];

/** The endpoint of an address; see `RequestResult`. */
function endpointOf(apiUrl: string, url: string): string {
  if (!url.startsWith(`${apiUrl}/api/`)) return 'link';
  const path = url.slice(apiUrl.length).split('?', 1)[0]!;
  return endpoints.find(([pattern]) => pattern.test(path))?.[1] ?? 'other';
}

/** Calls `onSend` for each request. The function that `onSend` returns is called once, when the answer begins or fails. */
export function watchRequests(
  apiUrl: string,
  onSend: (endpoint: string) => (result: RequestResult) => void,
): Dispatcher.DispatcherComposeInterceptor {
  const api = new URL(apiUrl).href.replace(/\/+$/, '');
  return (dispatch) => (options, handler) => {
    const endpoint = endpointOf(api, `${options.origin}${options.path}`);
    const onAnswer = onSend(endpoint);
    const began = performance.now();
    let reported = false;
    const report = (status: RequestResult['status']) => {
      if (!reported) onAnswer({ endpoint, status, ms: Math.round(performance.now() - began) });
      reported = true;
    };
    return dispatch(options, {
      onRequestStart: (...args) => handler.onRequestStart?.(...args),
      onRequestUpgrade: (...args) => handler.onRequestUpgrade?.(...args),
      onResponseStart(...args) {
        if (args[1] >= 200) report(args[1]);
        handler.onResponseStart?.(...args);
      },
      onResponseData: (...args) => handler.onResponseData?.(...args),
      onResponseEnd: (...args) => handler.onResponseEnd?.(...args),
      onResponseError(...args) {
        report(isAborted(options) ? 'aborted' : 'unanswered');
        handler.onResponseError?.(...args);
      },
    });
  };
}

/** Whether the caller aborted, for another reason than a timeout. */
function isAborted(options: object): boolean {
  const { signal } = options as { signal?: AbortSignal };
  return signal?.aborted === true && (signal.reason as { name?: string } | undefined)?.name !== 'TimeoutError';
}
