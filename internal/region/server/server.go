// SPDX-License-Identifier: Apache-2.0

// Package server is the region's front: one HTTP handler for every service. It finds the service that a request is
// signed for, checks the signature, says who called, and counts and logs the call. It knows no service's behaviour.
package server

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/fault"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// Config is what a [Server] is made of. Region, Services, Keys, Authorizer and Now are required.
type Config struct {
	Region     string
	Services   []wire.Service
	Keys       wire.KeyStore
	Authorizer wire.Authorizer
	Now        func() time.Time
	Log        *slog.Logger // nil logs nothing
	// IsSecure tells whether a request counts as aws:SecureTransport. nil means that every request does: the region
	// listens on loopback and inside its own VPCs only, and has no TLS, while policies of production deny plain HTTP.
	IsSecure func(*http.Request) bool
	// Before runs once a call's operation is known and may refuse it, after Faults.
	Before func(ctx context.Context, service, op string) error
	// Faults says which calls go wrong; nil means none.
	Faults *fault.Engine
	// Kill ends the process that sent a request, for faults; nil means that this cannot be done.
	Kill func(*http.Request) error
}

// Server answers all AWS calls of a region. It is an [http.Handler].
type Server struct {
	cfg              Config
	verifier         wire.Verifier
	endpoints        map[string]*wire.Endpoint // by signing name
	servicesByTarget map[string]string         // signing name by prefix of X-Amz-Target

	mu         sync.Mutex
	callCounts map[string]int
}

// New makes a server. Two services of the same signing name are an error.
func New(cfg Config) (*Server, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}

	s := &Server{
		cfg:              cfg,
		verifier:         wire.Verifier{Keys: cfg.Keys, Region: cfg.Region, Now: cfg.Now},
		endpoints:        map[string]*wire.Endpoint{},
		servicesByTarget: map[string]string{},
		callCounts:       map[string]int{},
	}

	for _, v := range cfg.Services {
		if s.endpoints[v.Name] != nil {
			return nil, fmt.Errorf("make the region's server: two services are called %s", v.Name)
		}

		s.endpoints[v.Name] = wire.NewEndpoint(v)
		if v.Target != "" {
			s.servicesByTarget[v.Target] = v.Name
		}
	}

	return s, nil
}

// Calls counts the calls since the last [Server.ResetCallCounts], by service and operation, such as "ec2:DescribeVpcs".
// Calls that are refused count too; those whose signature is wrong do not.
func (s *Server) Calls() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.callCounts)
}

// ResetCallCounts sets all counters to zero.
func (s *Server) ResetCallCounts() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.callCounts)
}

// apiCall is one request on its way.
type apiCall struct {
	service   string
	requestID string
	caller    wire.Caller
	start     time.Time
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := apiCall{requestID: newRequestID(), start: s.cfg.Now()}
	defer func() {
		v := recover()
		if v == http.ErrAbortHandler { //nolint:errorlint // a panic's value, as net/http compares it
			panic(v)
		}

		if v != nil {
			s.cfg.Log.Error(
				"a call panicked",
				slog.String("service", c.service),
				slog.String("panic", fmt.Sprint(v)),
				slog.String("stack", string(debug.Stack())),
			)

			wire.WriteError(w, r, s.serviceOrDefault(c.service), errors.New("panic"), c.requestID)
		}
	}()

	sig, err := wire.ParseSignature(r)
	c.service = s.findService(r, sig)
	endpoint := s.endpoints[c.service]
	if endpoint == nil {
		err = errors.Join(
			err,
			&wire.Error{
				Code:    "UnknownService",
				Message: "the region has no service " + c.service,
				Status:  http.StatusNotFound,
			},
		)
	}

	if err == nil {
		c.caller, err = s.verifyCaller(r, sig, endpoint.Service)
	}

	if err != nil {
		s.rejectCall(w, r, c, err)
		return
	}

	ctx := wire.WithAuthorizer(wire.WithCaller(r.Context(), c.caller), s.cfg.Authorizer)
	ctx = wire.WithConditions(ctx, s.conditionKeys(r))
	back := &faultWriter{ResponseWriter: w}
	result := endpoint.Serve(back, r.WithContext(ctx), c.requestID, func(op string) error {
		err := s.beforeOperation(ctx, c, op, back, r)
		back.dropped = back.dropped || errors.Is(err, errConnectionClosed)
		return err
	})

	s.logCall(r.Context(), c, result)
	s.abortConnection(r, back)
}

// verifyCaller checks the signature. Only S3 takes requests without one.
func (s *Server) verifyCaller(
	r *http.Request,
	sig *wire.Signature,
	service wire.Service,
) (wire.Caller, error) {
	if sig == nil && service.Protocol == wire.S3Protocol {
		return wire.AnonymousCaller(), wire.DecodeAnonymousBody(r)
	}

	return s.verifier.Verify(r, sig, service)
}

// findService is the signing name of the service that a request is for.
func (s *Server) findService(r *http.Request, sig *wire.Signature) string {
	if sig != nil && sig.Service != "" {
		return sig.Service
	}

	if target, _, ok := strings.Cut(r.Header.Get("X-Amz-Target"), "."); ok {
		return s.servicesByTarget[target]
	}

	if r.Method == http.MethodPost &&
		strings.HasPrefix(r.Header.Get("Content-Type"), "application/x-www-form-urlencoded") ||
		r.URL.Query().Has("Action") {
		return "sts" // a query request without a signature: any service of that protocol refuses it alike
	}

	return "s3"
}

// ServiceOf is the signing name of the service that a request is for, whatever its signature is worth.
func (s *Server) ServiceOf(r *http.Request) string {
	sig, err := wire.ParseSignature(r)
	if err != nil {
		return ""
	}

	return s.findService(r, sig)
}

// serviceOrDefault is a service to write an error for, where the request names one that does not exist.
func (s *Server) serviceOrDefault(name string) wire.Service {
	if e := s.endpoints[name]; e != nil {
		return e.Service
	}

	return wire.Service{Name: name, Protocol: wire.Query}
}

func (s *Server) rejectCall(w http.ResponseWriter, r *http.Request, c apiCall, err error) {
	wire.WriteError(w, r, s.serviceOrDefault(c.service), err, c.requestID)
	s.logCall(r.Context(), c, wire.CallResult{Err: err})
}

// conditionKeys are the condition keys that every request has.
func (s *Server) conditionKeys(r *http.Request) map[string][]string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}

	secure := s.cfg.IsSecure == nil || s.cfg.IsSecure(r)

	return map[string][]string{
		"aws:SourceIp":        {host},
		"aws:SecureTransport": {strconv.FormatBool(secure)},
		"aws:RequestedRegion": {s.cfg.Region},
		"aws:UserAgent":       {r.UserAgent()},
	}
}

func (s *Server) countCall(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.callCounts[name]++
}

// logCall says who called what with which result. It never has parameters, bodies or signatures.
func (s *Server) logCall(ctx context.Context, c apiCall, result wire.CallResult) {
	attrs := []slog.Attr{
		slog.String("service", c.service), slog.String("op", result.Op), slog.String("caller", c.caller.ARN),
		slog.Int(
			"status",
			result.Status,
		), slog.Duration("took", s.cfg.Now().Sub(c.start)), slog.String("request", c.requestID),
	}

	level := slog.LevelDebug
	if !isReadOperation(result.Op) {
		level = slog.LevelInfo
	}

	if result.Err != nil {
		attrs = append(attrs, slog.String("error", result.Err.Error()))
		level = slog.LevelInfo
	}

	if result.Status >= http.StatusInternalServerError {
		level = slog.LevelError
	}

	s.cfg.Log.LogAttrs(ctx, level, "call", attrs...)
}

// isReadOperation tells whether an operation changes nothing, by its name.
func isReadOperation(op string) bool {
	for _, verb := range []string{"Describe", "Get", "List", "Head"} {
		if strings.HasPrefix(op, verb) {
			return true
		}
	}

	return false
}

// newRequestID makes the id of a request. Reading randomness does not fail on Linux.
func newRequestID() string {
	b := make([]byte, 16)
	rand.Read(b) // never fails since Go 1.24
	h := hex.EncodeToString(b)

	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
