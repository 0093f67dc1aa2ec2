// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// stallLimit is for how long a server may send nothing.
const stallLimit = 30 * time.Second

// errStalled is the cause of a request that was given up because nothing came.
var errStalled = errors.New("the server has sent nothing for " + stallLimit.String())

// WatchStalls returns a transport that gives up requests to which a server sends nothing for half a minute.
func WatchStalls(base http.RoundTripper) http.RoundTripper {
	return stallTransport{base: base, limit: stallLimit}
}

// stallTransport gives up requests whose answer does not come, or stops coming.
type stallTransport struct {
	base  http.RoundTripper
	limit time.Duration
}

// RoundTrip sends a request.
func (s stallTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	timer := time.AfterFunc(s.limit, func() { cancel(errStalled) })
	resp, err := s.base.RoundTrip(req.WithContext(ctx))
	if err != nil {
		timer.Stop()
		err = explainStall(ctx, err)
		cancel(nil)

		return nil, err
	}

	resp.Body = &stallBody{ReadCloser: resp.Body, ctx: ctx, cancel: cancel, timer: timer, limit: s.limit}

	return resp, nil
}

// stallBody is the body of an answer, with a timer that every read resets.
type stallBody struct {
	io.ReadCloser
	ctx    context.Context //nolint:containedctx // of the request whose answer this is
	cancel context.CancelCauseFunc
	timer  *time.Timer
	limit  time.Duration
}

// Read reads from the answer.
func (b *stallBody) Read(p []byte) (int, error) {
	b.timer.Reset(b.limit)
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = explainStall(b.ctx, err)
	}

	return n, err
}

// Close ends the request.
func (b *stallBody) Close() error {
	b.timer.Stop()
	defer b.cancel(nil)

	return b.ReadCloser.Close()
}

// explainStall adds to an error that the request was given up.
func explainStall(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, errStalled) {
		return fmt.Errorf("%w: %w", cause, err)
	}

	return err
}
