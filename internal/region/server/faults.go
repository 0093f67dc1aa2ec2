// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/fault"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// errConnectionClosed ends a call without executing it, and closes the connection.
var errConnectionClosed = errors.New("the connection is closed by an injected fault")

// faultWriter is the response writer of a call. A fault can suppress the response after the call
// was executed.
type faultWriter struct {
	http.ResponseWriter
	dropped    bool // the response is suppressed
	killClient bool // the calling process is killed
}

// WriteHeader implements [http.ResponseWriter].
func (l *faultWriter) WriteHeader(status int) {
	if !l.dropped {
		l.ResponseWriter.WriteHeader(status)
	}
}

// Write implements [http.ResponseWriter].
func (l *faultWriter) Write(b []byte) (int, error) {
	if l.dropped {
		return len(b), nil
	}

	return l.ResponseWriter.Write(b)
}

// ReadFrom implements [io.ReaderFrom], so that large objects are copied efficiently.
func (l *faultWriter) ReadFrom(r io.Reader) (int64, error) {
	if l.dropped {
		return io.Copy(io.Discard, r)
	}

	return io.Copy(l.ResponseWriter, r)
}

// Unwrap supports [http.ResponseController].
func (l *faultWriter) Unwrap() http.ResponseWriter { return l.ResponseWriter }

// beforeOperation counts the call, applies the faults, and calls Config.Before. An error ends the
// call without executing it.
func (s *Server) beforeOperation(
	ctx context.Context,
	c apiCall,
	op string,
	response *faultWriter,
	r *http.Request,
) error {
	s.countCall(c.service + ":" + op)
	call := fault.Call{Service: c.service, Action: op, Mutating: IsMutating(op)}

	for _, rule := range s.cfg.Faults.RecordCall(call) {
		s.cfg.Log.InfoContext(
			ctx,
			"injecting fault",
			slog.Int("rule", rule.ID),
			slog.String("effect", string(rule.Effect)),
			slog.String("service", c.service),
			slog.String("op", op),
		)
		if err := s.applyFault(ctx, c, rule, response, r); err != nil {
			return err
		}
	}

	if s.cfg.BeforeOperation == nil {
		return nil
	}

	return s.cfg.BeforeOperation(ctx, c.service, op)
}

// applyFault applies a rule. An error ends the call without executing it.
func (s *Server) applyFault(
	ctx context.Context,
	c apiCall,
	rule fault.Rule,
	response *faultWriter,
	r *http.Request,
) error {
	switch rule.Effect {
	case fault.EffectDelay:
		return fault.Sleep(ctx, time.Duration(rule.Delay))
	case fault.EffectDropAnswer:
		response.dropped = true
	case fault.EffectKillAfter:
		response.dropped = true
		response.killClient = true
	case fault.EffectKill:
		s.killClient(r)
		return errConnectionClosed
	case fault.EffectClose:
		return errConnectionClosed
	case fault.EffectFail:
		return newFaultError(
			rule,
			newError(codeInternal, http.StatusInternalServerError, "An internal error has occurred"),
		)

	case fault.EffectThrottle:
		return newFaultError(rule, newThrottleError(s.serviceOrDefault(c.service)))
	case fault.EffectProvision, fault.EffectSpotInterruption, fault.EffectRebalance, fault.EffectNoCapacity: // affects no calls
	}

	return nil
}

// newFaultError returns the rule's error, or usual. An error with another code than usual has
// status 400.
func newFaultError(rule fault.Rule, usual *wire.Error) error {
	if rule.Code != "" && rule.Code != usual.Code {
		usual = newError(errorCode(rule.Code), 0, "injected by an operator of the region")
	}

	if rule.Message != "" {
		usual.Message = rule.Message
	}

	return usual
}

// newThrottleError returns the rate limit error of a service.
func newThrottleError(s wire.Service) *wire.Error {
	switch s.Protocol {
	case wire.EC2QueryProtocol:
		return newError(
			codeRequestLimitExceeded,
			http.StatusServiceUnavailable,
			"Request limit exceeded.",
		)

	case wire.S3Protocol:
		return newError(
			codeSlowDown,
			http.StatusServiceUnavailable,
			"Please reduce your request rate.",
		)

	case wire.JSONProtocol:
		return newError(codeThrottlingException, http.StatusBadRequest, "Rate exceeded")
	case wire.RESTJSONProtocol:
		return newError(codeTooManyRequests, http.StatusTooManyRequests, "Rate Exceeded.")
	case wire.QueryProtocol, wire.RESTProtocol:
	}

	return newError(codeThrottling, http.StatusBadRequest, "Rate exceeded")
}

// abortConnection closes the connection without a response if a fault requires it. Panicking with
// http.ErrAbortHandler is net/http's mechanism for that.
func (s *Server) abortConnection(r *http.Request, response *faultWriter) {
	if response.killClient {
		s.killClient(r)
	}

	if response.dropped {
		panic(http.ErrAbortHandler)
	}
}

// killClient kills the process at the other end of r's connection.
func (s *Server) killClient(r *http.Request) {
	if s.cfg.KillClient == nil {
		s.cfg.Log.Warn("cannot kill a client: not supported by this region")
		return
	}

	if err := s.cfg.KillClient(r); err != nil {
		s.cfg.Log.Error("cannot kill client", slog.Any("error", err))
	}
}

// IsMutating reports whether an operation changes something, by its name.
func IsMutating(op string) bool {
	return !isReadOperation(op) &&
		!slices.ContainsFunc(
			[]string{
				"Decrypt",
				"Encrypt",
				"ReEncrypt",
				"GenerateDataKey",
				"GenerateRandom",
				"Simulate",
				"AssumeRole",
			},
			func(p string) bool { return strings.HasPrefix(op, p) },
		)
}
