// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// loopbackRetry is the pause after an address could not be used.
const loopbackRetry = time.Minute

// loopbackServer is a server for programs in the network of this machine.
type loopbackServer struct {
	// serves says what it serves, such as "the agent's metrics".
	serves string
	// address such as 127.0.0.1:2382.
	address string
	handler http.Handler
}

// keepServing serves until ctx ends. The machine works without it: a program that uses the port is no reason to end.
func keepServing(ctx context.Context, a *Agent, s loopbackServer) error {
	for {
		err := s.serve(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}

		a.Log.Warn("cannot serve on the loopback interface; will retry", slog.String("what", s.serves), slog.Any("error", err))
		if err := a.Wait(ctx, loopbackRetry); err != nil {
			return err
		}
	}
}

// serve serves until ctx ends, or until the address cannot be used.
func (s loopbackServer) serve(ctx context.Context) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", s.address)
	if err != nil {
		return fmt.Errorf("serve %s at %s: %w", s.serves, s.address, err)
	}

	server := &http.Server{
		Handler:           s.handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
	}

	stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // ends Serve
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", s.serves, err)
	}

	return ctx.Err()
}
