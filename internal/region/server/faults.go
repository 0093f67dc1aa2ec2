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

// errClosed is the end of a connection whose call does nothing.
var errClosed = errors.New("the connection is closed by an injected fault")

// line is the way back to the client, which a fault may cut after the call took effect.
type line struct {
	http.ResponseWriter
	cut  bool // nothing is answered any more
	kill bool // and the client's process ends
}

// WriteHeader implements http.ResponseWriter.
func (l *line) WriteHeader(status int) {
	if !l.cut {
		l.ResponseWriter.WriteHeader(status)
	}
}

// Write implements http.ResponseWriter.
func (l *line) Write(b []byte) (int, error) {
	if l.cut {
		return len(b), nil
	}

	return l.ResponseWriter.Write(b) //nolint:wrapcheck // it stands in for what it holds
}

// ReadFrom keeps the fast way of large objects.
func (l *line) ReadFrom(r io.Reader) (int64, error) {
	if l.cut {
		return io.Copy(io.Discard, r)
	}

	return io.Copy(l.ResponseWriter, r)
}

// Unwrap lets http.ResponseController through.
func (l *line) Unwrap() http.ResponseWriter { return l.ResponseWriter }

// before runs once a call's operation is known.
func (s *Server) before(ctx context.Context, c call, op string, back *line, r *http.Request) error {
	s.count(c.service + ":" + op)
	for _, rule := range s.cfg.Faults.Next(fault.Call{Service: c.service, Action: op, Mutating: Mutates(op)}) {
		s.cfg.Log.InfoContext(
			ctx,
			"a fault is injected",
			slog.Int("rule", rule.ID),
			slog.String("effect", string(rule.Effect)),
			slog.String("service", c.service),
			slog.String("op", op),
		)
		if err := s.inject(ctx, c, rule, back, r); err != nil {
			return err
		}
	}

	if s.cfg.Before == nil {
		return nil
	}

	return s.cfg.Before(ctx, c.service, op)
}

// inject carries out what a rule says. An error ends the call without effect.
func (s *Server) inject(ctx context.Context, c call, rule fault.Rule, back *line, r *http.Request) error {
	switch rule.Effect {
	case fault.Delay:
		return fault.Wait(ctx, time.Duration(rule.Delay))
	case fault.DropAnswer:
		back.cut = true
	case fault.KillAfter:
		back.cut = true
		back.kill = true
	case fault.Kill:
		s.kill(r)
		return errClosed
	case fault.Close:
		return errClosed
	case fault.Fail:
		return injected(
			rule,
			wire.Error{
				Code:    "InternalError",
				Message: "An internal error has occurred",
				Status:  http.StatusInternalServerError,
			},
		)

	case fault.Throttle:
		return injected(rule, throttled(s.known(c.service)))
	case fault.Provision: // is about no call
	}

	return nil
}

// injected is the error of a rule, or the usual one. Another code than the usual is a refusal: status 400.
func injected(rule fault.Rule, usual wire.Error) error {
	if rule.Code != "" && rule.Code != usual.Code {
		usual = wire.Error{Code: rule.Code, Message: "injected by an operator of the region"}
	}

	if rule.Message != "" {
		usual.Message = rule.Message
	}

	return &usual
}

// throttled is how a service answers who calls too often.
func throttled(s wire.Service) wire.Error {
	switch s.Protocol {
	case wire.EC2Query:
		return wire.Error{
			Code:    "RequestLimitExceeded",
			Message: "Request limit exceeded.",
			Status:  http.StatusServiceUnavailable,
		}

	case wire.RESTXML:
		return wire.Error{
			Code:    "SlowDown",
			Message: "Please reduce your request rate.",
			Status:  http.StatusServiceUnavailable,
		}

	case wire.JSON:
		return wire.Error{
			Code:    "ThrottlingException",
			Message: "Rate exceeded",
			Status:  http.StatusBadRequest,
		}

	case wire.Query, wire.REST:
	}

	return wire.Error{Code: "Throttling", Message: "Rate exceeded", Status: http.StatusBadRequest}
}

// sever ends the connection where a fault says so. The panic is net/http's own way to end one without an answer.
func (s *Server) sever(r *http.Request, back *line) {
	if back.kill {
		s.kill(r)
	}

	if back.cut {
		panic(http.ErrAbortHandler)
	}
}

// kill ends the process at the other end of r's connection.
func (s *Server) kill(r *http.Request) {
	if s.cfg.Kill == nil {
		s.cfg.Log.Warn("a client is to be killed, but this region has no way to do it")
		return
	}

	if err := s.cfg.Kill(r); err != nil {
		s.cfg.Log.Error("a client could not be killed", slog.Any("error", err))
	}
}

// Mutates tells whether an operation changes something, by its name.
func Mutates(op string) bool {
	return !reads(op) &&
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
