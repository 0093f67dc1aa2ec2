// SPDX-License-Identifier: Apache-2.0

// Package server implements the region's HTTP endpoint for all services. It determines the service
// of a request by its signature, verifies the signature, identifies the caller, injects faults,
// dispatches the call, and counts and logs it. It knows no service's behaviour.
package server

import (
	"context"
	"crypto/rand"
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
	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// Config configures a [Server]. Region, Services, Keys, Authorizer, and Now are required.
type Config struct {
	// Region is the name of the region, such as us-east-1.
	Region string
	// Services to serve.
	Services []wire.Service
	// Keys are the access keys.
	Keys wire.KeyStore
	// Authorizer evaluates IAM policies.
	Authorizer wire.Authorizer
	// Now is the clock.
	Now func() time.Time
	// Log receives one record per call; nil means no log.
	Log *slog.Logger
	// IsSecure reports whether a request counts as aws:SecureTransport. Nil means that all do:
	// production policies deny plain HTTP, but the region has no TLS because it listens only on
	// loopback and inside its own VPCs.
	IsSecure func(*http.Request) bool
	// BeforeOperation is called before each operation, after Faults, and may reject it.
	BeforeOperation func(ctx context.Context, service, op string) error
	// Faults are the injected faults; nil means none.
	Faults *fault.Engine
	// KillClient kills the process that sent a request, for injected faults; nil means that this is not
	// supported.
	KillClient func(*http.Request) error
}

// Server handles all AWS API calls of a region. It is an [http.Handler].
type Server struct {
	cfg       Config
	verifier  wire.Verifier
	endpoints map[string]*wire.Endpoint // by signing name
	// servicesByTarget maps the prefix of X-Amz-Target to a signing name.
	servicesByTarget map[string]string

	mu         sync.Mutex
	callCounts map[string]int
}

// New returns a server. It fails if two services have the same signing name.
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
			return nil, fmt.Errorf("create the region's server: two services have the name %s", v.Name)
		}

		s.endpoints[v.Name] = wire.NewEndpoint(v)
		if v.TargetPrefix != "" {
			s.servicesByTarget[v.TargetPrefix] = v.Name
		}
	}

	return s, nil
}

// CallCounts returns the number of calls since the last [Server.ResetCallCounts] by service and
// operation, such as "ec2:DescribeVpcs". It includes rejected calls, except those with an invalid
// signature.
func (s *Server) CallCounts() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.callCounts)
}

// ResetCallCounts resets all counters to zero.
func (s *Server) ResetCallCounts() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.callCounts)
}

// apiCall is a request that is being served.
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
		if v == http.ErrAbortHandler { //nolint:errorlint // a recovered value, compared as in net/http
			panic(v)
		}

		if v != nil {
			s.cfg.Log.Error(
				"call panicked",
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
			newError(
				codeUnknownService,
				http.StatusNotFound,
				"the region has no service "+c.service,
			),
		)
	}

	if err == nil {
		c.caller, err = s.verifyCaller(r, sig, endpoint)
	}

	if err != nil {
		s.rejectCall(w, r, c, err)
		return
	}

	ctx := wire.WithAuthorizer(wire.WithCaller(r.Context(), c.caller), s.cfg.Authorizer)
	ctx = wire.WithConditionKeys(ctx, s.conditionKeys(r))
	back := &faultWriter{ResponseWriter: w}
	result := endpoint.Serve(back, r.WithContext(ctx), c.requestID, func(op string) error {
		err := s.beforeOperation(ctx, c, op, back, r)
		back.dropped = back.dropped || errors.Is(err, errConnectionClosed)
		return err
	})

	s.logCall(r.Context(), c, result)
	s.abortConnection(r, back)
}

// verifyCaller verifies the signature. Only S3 and some operations of STS accept unsigned requests.
func (s *Server) verifyCaller(
	r *http.Request,
	sig *wire.Signature,
	endpoint *wire.Endpoint,
) (wire.Caller, error) {
	if sig != nil {
		return s.verifier.Verify(r, sig, endpoint.Service)
	}

	if endpoint.Service.Protocol == wire.S3Protocol {
		return wire.AnonymousCaller(), wire.DecodeAnonymousBody(r)
	}

	accepted, err := endpoint.AcceptsUnsigned(r)
	if err == nil && accepted {
		return wire.AnonymousCaller(), nil
	}

	if err != nil {
		return wire.Caller{}, err
	}

	return s.verifier.Verify(r, nil, endpoint.Service)
}

// findService returns the signing name of the service that a request is for.
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
		return "sts" // an unsigned request of the query protocol: all its services reject it alike
	}

	return "s3"
}

// ServiceOf returns the signing name of the service that a request is for. It does not verify the
// signature.
func (s *Server) ServiceOf(r *http.Request) string {
	sig, err := wire.ParseSignature(r)
	if err != nil {
		return ""
	}

	return s.findService(r, sig)
}

// serviceOrDefault returns the service, or a placeholder for writing an error if it does not exist.
func (s *Server) serviceOrDefault(name string) wire.Service {
	if e := s.endpoints[name]; e != nil {
		return e.Service
	}

	return wire.Service{Name: name, Protocol: wire.QueryProtocol}
}

func (s *Server) rejectCall(w http.ResponseWriter, r *http.Request, c apiCall, err error) {
	wire.WriteError(w, r, s.serviceOrDefault(c.service), err, c.requestID)
	s.logCall(r.Context(), c, wire.CallResult{Err: err})
}

// conditionKeys returns the global condition keys of a request.
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

// logCall logs the caller, operation, and result of a call. It never logs parameters, bodies, or
// signatures.
func (s *Server) logCall(ctx context.Context, c apiCall, result wire.CallResult) {
	attrs := []slog.Attr{
		slog.String("service", c.service),
		slog.String("op", result.Op),
		slog.String("caller", c.caller.ARN),
		slog.Int("status", result.Status),
		slog.Duration("took", s.cfg.Now().Sub(c.start)),
		slog.String("request", c.requestID),
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

// isReadOperation reports whether an operation only reads, by its name.
func isReadOperation(op string) bool {
	for _, verb := range []string{"Describe", "Get", "List", "Head"} {
		if strings.HasPrefix(op, verb) {
			return true
		}
	}

	return false
}

// newRequestID returns a random request id in the format of a UUID.
func newRequestID() string {
	return sdkshape.RandomUUID(rand.Reader)
}
