// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/pki"
)

// Port of the endpoint on control-plane machines and on the internal load balancer.
const Port = "3988"

// certificatePath is where a worker posts its request.
const certificatePath = "/v1/node-certificate"

// Machine is what EC2 says of an instance.
type Machine struct {
	// Account owns the instance.
	ID, Account, Name, Address, State, Role, Group string
}

// Server answers workers. It grants nothing but node certificates.
type Server struct {
	// CA signs node certificates.
	CA pki.CA
	// WorkerRoles are the IAM roles that workers must have, by the group that they are of.
	WorkerRoles map[string]string
	// STSEndpoint is our own endpoint; what a worker sends never chooses it.
	STSEndpoint string
	// HTTP asks STS.
	HTTP *http.Client
	// FindMachine asks EC2 for an instance of this cluster.
	FindMachine func(ctx context.Context, id string) (Machine, bool, error)
	// TTL of certificates.
	TTL time.Duration
	Now func() time.Time
	Log *slog.Logger

	mu         sync.Mutex
	tokens     float64
	refilledAt time.Time
}

// requestBurst and rate per second of requests that are looked at; each costs a call to STS and one to EC2.
const (
	requestBurst = 50
	requestRate  = 10
)

type certificateRequest struct {
	// CSR as PEM. Its names are not used.
	CSR string `json:"csr"`
	// Proof is the query of a signed GetCallerIdentity.
	Proof string `json:"proof"`
}

// Certificates are a node's, as PEM, for the key of the certificate request.
type Certificates struct {
	// Name of the node.
	Name string `json:"name"`
	// Client is the kubelet's to the API, Server is for its own port.
	Client string `json:"client"`
	Server string `json:"server"`
}

// refusal is an answer other than 200. The reason is told, since none holds a secret.
type refusal struct {
	code   int
	reason string
}

func (r refusal) Error() string { return r.reason }

// ServeHTTP serves certificatePath and /healthz.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == "/healthz" && r.Method == http.MethodGet:
		w.WriteHeader(http.StatusOK)
	case r.URL.Path != certificatePath:
		http.NotFound(w, r)
	case r.Method != http.MethodPost:
		http.Error(w, "use POST", http.StatusMethodNotAllowed)
	case !s.takeToken():
		http.Error(w, "too many requests", http.StatusTooManyRequests)
	default:
		s.serveCertificate(w, r)
	}
}

func (s *Server) serveCertificate(w http.ResponseWriter, r *http.Request) {
	out, err := s.issueCertificates(r.Context(), http.MaxBytesReader(w, r.Body, 32<<10))
	var no refusal
	switch {
	case errors.As(err, &no):
		s.Log.Warn(
			"join refused",
			slog.String("from", r.RemoteAddr),
			slog.Int("code", no.code),
			slog.String("reason", no.reason),
		)

		http.Error(w, no.reason, no.code)

	case err != nil:
		s.Log.Error("join failed", slog.String("from", r.RemoteAddr), slog.Any("error", err))
		http.Error(w, "try again", http.StatusServiceUnavailable)
	default:
		s.Log.Info("joined", slog.String("from", r.RemoteAddr), slog.String("node", out.Name))
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(out) // the worker asks again if it got less
	}
}

// takeToken is a token bucket over all workers.
func (s *Server) takeToken() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.Now()
	if s.refilledAt.IsZero() {
		s.tokens = requestBurst
		s.refilledAt = now
	}

	s.tokens = min(requestBurst, s.tokens+requestRate*now.Sub(s.refilledAt).Seconds())
	s.refilledAt = now
	if s.tokens < 1 {
		return false
	}

	s.tokens--

	return true
}

func (s *Server) issueCertificates(ctx context.Context, body io.Reader) (Certificates, error) {
	var req certificateRequest
	dec := json.NewDecoder(body)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&req); err != nil {
		return Certificates{}, refusal{http.StatusBadRequest, "not a certificate request"}
	}

	csr, err := parseCSR(req.CSR)
	if err != nil {
		return Certificates{}, refusal{http.StatusBadRequest, err.Error()}
	}

	if req.Proof, err = checkProof(req.Proof, s.Now()); err != nil {
		return Certificates{}, refusal{http.StatusForbidden, err.Error()}
	}

	who, err := s.identifyCaller(ctx, req)
	if err != nil {
		return Certificates{}, err
	}

	machine, err := s.findCallerMachine(ctx, who)
	if err != nil {
		return Certificates{}, err
	}

	if cn := csr.Subject.CommonName; cn != "" && cn != NodeUser(machine.Name) {
		return Certificates{}, refusal{
			http.StatusForbidden,
			fmt.Sprintf("instance %s is node %s and may not be %q", machine.ID, machine.Name, cn),
		}
	}

	return s.signCertificates(machine, csr)
}

// parseCSR also checks that the sender has the key.
func parseCSR(text string) (*x509.CertificateRequest, error) {
	block, rest := pem.Decode([]byte(text))
	if block == nil || block.Type != "CERTIFICATE REQUEST" || len(strings.TrimSpace(string(rest))) > 0 {
		return nil, errors.New("csr is not one PEM block of a certificate request")
	}

	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, errors.New("csr can not be read")
	}

	if err := csr.CheckSignature(); err != nil {
		return nil, errors.New("csr is not signed by its own key")
	}

	return csr, nil
}

// caller is who signed a proof, as STS says: an instance of an account.
type caller struct {
	account, role, instance string
}

// identifyCaller lets STS say who signed the proof.
func (s *Server) identifyCaller(ctx context.Context, req certificateRequest) (caller, error) {
	ask, err := http.NewRequestWithContext(ctx, http.MethodGet, s.STSEndpoint+"/?"+req.Proof, nil)
	if err != nil {
		return caller{}, refusal{http.StatusForbidden, "the proof is no query"}
	}

	ask.Header.Set(csrHashHeader, hashCSR([]byte(req.CSR)))
	resp, err := s.HTTP.Do(ask)
	if fault, ok := errors.AsType[*url.Error](err); ok {
		err = fault.Err // its URL holds the worker's session token
	}

	if err != nil {
		return caller{}, fmt.Errorf("ask STS: %w", err)
	}

	defer resp.Body.Close() //nolint:errcheck // read or dropped
	body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return caller{}, fmt.Errorf("ask STS: %w", err)
	}

	if resp.StatusCode >= http.StatusInternalServerError {
		return caller{}, fmt.Errorf("ask STS: %s", resp.Status)
	}

	if resp.StatusCode != http.StatusOK {
		return caller{}, refusal{
			http.StatusForbidden,
			"STS does not accept the proof for this certificate request",
		}
	}

	var answer struct {
		ARN string `xml:"GetCallerIdentityResult>Arn"`
	}
	if err := xml.Unmarshal(body, &answer); err != nil {
		return caller{}, fmt.Errorf("read the answer of STS: %w", err)
	}

	return s.parseCallerARN(answer.ARN)
}

// parseCallerARN takes the account and the instance id out of arn:aws:sts::ACCOUNT:assumed-role/ROLE/INSTANCE. EC2 alone may
// assume the role and sets the session's name, so a worker can not choose it. That holds in our account only: in one of
// his own anybody makes a role of this name and a session of any name.
func (s *Server) parseCallerARN(arn string) (caller, error) {
	fields := strings.Split(arn, ":")
	if len(fields) != 6 || fields[2] != "sts" {
		return caller{}, refusal{http.StatusForbidden, "the proof is not of an assumed role"}
	}

	parts := strings.Split(fields[5], "/")
	if len(parts) != 3 || parts[0] != "assumed-role" ||
		!slices.Contains(slices.Collect(maps.Values(s.WorkerRoles)), parts[1]) ||
		!strings.HasPrefix(parts[2], "i-") {
		return caller{}, refusal{
			http.StatusForbidden,
			"the proof is not of an instance with this cluster's worker role",
		}
	}

	return caller{account: fields[4], role: parts[1], instance: parts[2]}, nil
}

func (s *Server) findCallerMachine(ctx context.Context, who caller) (Machine, error) {
	id := who.instance
	m, found, err := s.FindMachine(ctx, id)
	switch {
	case err != nil:
		return Machine{}, fmt.Errorf("look for instance %s: %w", id, err)
	case !found:
		return Machine{}, refusal{http.StatusForbidden, "instance " + id + " is not of this cluster"}
	case m.Account == "" || m.Account != who.account:
		return Machine{}, refusal{http.StatusForbidden, "the proof is of another account than instance " + id}
	case m.State != "running" && m.State != "pending":
		return Machine{}, refusal{http.StatusForbidden, "instance " + id + " is " + m.State}
	case m.Role != "worker" || s.WorkerRoles[m.Group] == "" || s.WorkerRoles[m.Group] != who.role:
		return Machine{}, refusal{
			http.StatusForbidden,
			"instance " + id + " is not a worker of a group of this cluster",
		}
	}

	return m, nil
}

// NodeUser is the user that a node is.
func NodeUser(name string) string { return "system:node:" + name }

// NodeLeaves of a node: the kubelet as a client of the API, and its own server.
func NodeLeaves(name string, address netip.Addr, ttl time.Duration) (client, server pki.Leaf) {
	client = pki.Leaf{
		CN:     NodeUser(name),
		Orgs:   []string{"system:nodes"},
		Usages: []pki.Usage{pki.ClientUsage},
		TTL:    ttl,
	}

	server = pki.Leaf{
		CN:     NodeUser(name),
		Orgs:   []string{"system:nodes"},
		Usages: []pki.Usage{pki.ServerUsage},
		TTL:    ttl,
		DNS:    []string{name},
		IPs:    []netip.Addr{address},
	}

	return client, server
}

func (s *Server) signCertificates(m Machine, csr *x509.CertificateRequest) (Certificates, error) {
	address, err := netip.ParseAddr(m.Address)
	if err != nil || m.Name == "" {
		return Certificates{}, fmt.Errorf("instance %s has name %q and address %q", m.ID, m.Name, m.Address)
	}

	client, server := NodeLeaves(strings.ToLower(m.Name), address, s.TTL)
	out := Certificates{Name: strings.ToLower(m.Name)}
	cert, err := pki.IssueLeaf(s.CA, client, csr.PublicKey, s.Now())
	if err != nil {
		return Certificates{}, refusal{http.StatusBadRequest, err.Error()}
	}

	out.Client = string(cert)
	if cert, err = pki.IssueLeaf(s.CA, server, csr.PublicKey, s.Now()); err != nil {
		return Certificates{}, refusal{http.StatusBadRequest, err.Error()}
	}

	out.Server = string(cert)

	return out, nil
}
