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
	"time"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
)

// Port is the port of the join endpoint on control-plane machines and on the internal load
// balancer.
const Port = "3988"

// certificatePath is the URL path of certificate requests.
const certificatePath = "/v1/node-certificate"

// Machine is an EC2 instance of the cluster.
type Machine struct {
	// ID is the instance id.
	ID string
	// Account is the AWS account that owns the instance.
	Account string
	// Name is the private DNS name, which is also the node's name.
	Name string
	// Address is the private IPv4 address.
	Address string
	// State is the instance state, such as running.
	State string
	// Role is the value of the tag slipway.dev/role.
	Role string
	// Group is the name of the instance group, the value of a tag.
	Group string
	// ScalingGroup is the Auto Scaling group that launched the machine: the value of a tag that only AWS sets.
	ScalingGroup string
	// VPC is the id of the VPC.
	VPC string
	// Image is the id of the machine image.
	Image string
	// TokensRequired is set if the metadata service requires tokens.
	TokensRequired bool
}

// Server is the HTTP handler of the join endpoint. It issues node certificates and takes heartbeats. It
// is safe for concurrent use.
type Server struct {
	// CA signs the node certificates.
	CA pki.CA
	// Cluster is the name of the cluster.
	Cluster string
	// WorkerRoles maps the name of a worker group to the IAM role that its machines must have.
	WorkerRoles map[string]string
	// STSEndpoint is the URL of this machine's STS. A worker's request cannot change it.
	STSEndpoint string
	// HTTP is the client for STS.
	HTTP *http.Client
	// FindMachine looks up an instance of this cluster in EC2. The second result is false if there
	// is none.
	FindMachine func(ctx context.Context, id string) (Machine, bool, error)
	// CheckLaunch returns an error unless a machine that no Auto Scaling group launched runs what its group runs. The machine
	// is told the reason of an error of [Forbid]. Nil: such a machine is refused.
	CheckLaunch func(ctx context.Context, m Machine) error
	// Announce tells Kubernetes that a machine lives, before it gets its certificates; nil does nothing. A failure is
	// logged only: the list of machines is also kept otherwise.
	Announce func(ctx context.Context, m Machine) error
	// PassSignal signals the stack for a worker. The worker is told the reason of an error of [Refuse]. Nil: signals
	// are not served.
	PassSignal func(ctx context.Context, m Machine, status Signal) error
	// ActForMachine does a lifecycle action for a worker, and reports whether Auto Scaling waited for it. Nil: lifecycle
	// actions are not served.
	ActForMachine func(ctx context.Context, m Machine, action LifecycleAction) (waited bool, err error)
	// ClusterID is the cluster's random id, which tokens of users are bound to. Empty: there are no users.
	ClusterID string
	// Users are those whose tokens are accepted. Empty: token reviews are not served.
	Users []v1alpha1.APIUser
	// TTL of the certificates.
	TTL time.Duration
	// Now is the clock.
	Now func() time.Time
	// Log receives refusals, failures, and successful joins.
	Log *slog.Logger
	// Heartbeats records the heartbeats of workers; nil means that they are not served.
	Heartbeats *Heartbeats

	limits  requestLimits
	actions requestLimits
	reviews reviewLimit
}

type certificateRequest struct {
	// CSR as PEM. Its subject may only name the caller's own node.
	CSR string `json:"csr"`
	// Proof is the query string of a signed GetCallerIdentity request, see Signer.
	Proof string `json:"proof"`
}

// Certificates are a node's certificates as PEM, for the key of the certificate signing request.
type Certificates struct {
	// Name of the node.
	Name string `json:"name"`
	// Client certificate of the kubelet for kube-apiserver.
	Client string `json:"client"`
	// Server certificate for the kubelet's own port.
	Server string `json:"server"`
}

// refusal is a response other than 200. The worker sees the reason, which never contains a secret.
type refusal struct {
	code   int
	reason string
}

func (r refusal) Error() string { return r.reason }

// ServeHTTP serves POST certificatePath, POST heartbeatPath, POST signalPath, POST lifecyclePath,
// POST TokenReviewPath and GET /healthz.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	serve := s.findHandler(r.URL.Path)

	switch {
	case r.URL.Path == "/healthz" && r.Method == http.MethodGet:
		w.WriteHeader(http.StatusOK)
	case serve == nil:
		http.NotFound(w, r)
	case r.Method != http.MethodPost:
		http.Error(w, "use POST", http.StatusMethodNotAllowed)
	default:
		serve(w, r)
	}
}

// findHandler returns what serves the requests of a path; nil if this machine does not serve it.
func (s *Server) findHandler(path string) http.HandlerFunc {
	switch {
	case path == certificatePath:
		return s.serveCertificate
	case path == heartbeatPath && s.Heartbeats != nil:
		return s.serveHeartbeat
	case path == signalPath && s.PassSignal != nil:
		return s.serveSignal
	case path == lifecyclePath && s.ActForMachine != nil:
		return s.serveLifecycle
	case path == TokenReviewPath && len(s.Users) > 0:
		return s.serveTokenReview
	}

	return nil
}

func (s *Server) serveCertificate(w http.ResponseWriter, r *http.Request) {
	from := newRequestCaller(r, s.Now())
	out, err := s.issueCertificates(r.Context(), from, http.MaxBytesReader(w, r.Body, 32<<10))
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
		_ = json.NewEncoder(w).Encode(out) // a worker that receives a partial response retries
	}
}

// parseRequest checks the form of a request, which costs no call to AWS.
func (s *Server) parseRequest(body io.Reader) (certificateRequest, *x509.CertificateRequest, error) {
	var req certificateRequest
	if err := decodeRequest(body, &req); err != nil {
		return req, nil, refusal{http.StatusBadRequest, "body is not a JSON certificate request"}
	}

	csr, err := parseCSR(req.CSR)
	if err != nil {
		return req, nil, refusal{http.StatusBadRequest, err.Error()}
	}

	if req.Proof, err = checkProof(req.Proof, csrHashHeader, s.Now()); err != nil {
		return req, nil, refusal{http.StatusForbidden, err.Error()}
	}

	return req, csr, nil
}

// issueCertificates answers a request of a caller. Only requests of the right form count for the rate limits, so
// that nobody blocks the renewals of others with what costs nothing.
func (s *Server) issueCertificates(ctx context.Context, from requestCaller, body io.Reader) (Certificates, error) {
	req, csr, err := s.parseRequest(body)
	if err != nil {
		return Certificates{}, err
	}

	if !s.limits.take(from, s.Now()) {
		return Certificates{}, refusal{http.StatusTooManyRequests, "too many requests"}
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
			fmt.Sprintf(
				"instance %s is node %s and may not request a certificate for %q",
				machine.ID,
				machine.Name,
				cn,
			),
		}
	}

	if s.Announce != nil {
		if err := s.Announce(ctx, machine); err != nil {
			s.Log.Warn("cannot announce a machine", slog.String("instance", machine.ID), slog.Any("error", err))
		}
	}

	return s.signCertificates(machine, csr)
}

// parseCSR parses a certificate signing request and verifies its signature, which proves that the
// sender has the key.
func parseCSR(text string) (*x509.CertificateRequest, error) {
	block, rest := pem.Decode([]byte(text))
	if block == nil || block.Type != "CERTIFICATE REQUEST" || len(strings.TrimSpace(string(rest))) > 0 {
		return nil, errors.New("csr must be one PEM block of type CERTIFICATE REQUEST")
	}

	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, errors.New("csr cannot be parsed")
	}

	if err := csr.CheckSignature(); err != nil {
		return nil, errors.New("csr is not signed by its own key")
	}

	return csr, nil
}

// caller is the signer of a proof as reported by STS: an instance and its role in an account.
type caller struct {
	account, role, instance string
}

// identifyCaller asks STS which instance signed the proof.
func (s *Server) identifyCaller(ctx context.Context, req certificateRequest) (caller, error) {
	who, err := s.callSTS(ctx, req.Proof, signedHeader{csrHashHeader, hashCSR([]byte(req.CSR))})
	if err != nil {
		return caller{}, err
	}

	return s.parseCallerARN(who.ARN)
}

// stsIdentity is the answer of STS.
type stsIdentity struct {
	ARN    string `xml:"GetCallerIdentityResult>Arn"`
	UserID string `xml:"GetCallerIdentityResult>UserId"`
}

// callSTS asks STS who signed the proof together with the header.
func (s *Server) callSTS(ctx context.Context, proof string, header signedHeader) (stsIdentity, error) {
	ask, err := http.NewRequestWithContext(ctx, http.MethodGet, s.STSEndpoint+"/?"+proof, nil)
	if err != nil {
		return stsIdentity{}, refusal{http.StatusForbidden, "the proof is not a valid query string"}
	}

	ask.Header.Set(header.name, header.value)
	resp, err := s.HTTP.Do(ask)
	if fault, ok := errors.AsType[*url.Error](err); ok {
		err = fault.Err // the URL in the error contains the worker's session token
	}

	if err != nil {
		return stsIdentity{}, fmt.Errorf("call STS GetCallerIdentity: %w", err)
	}

	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return stsIdentity{}, fmt.Errorf("call STS GetCallerIdentity: %w", err)
	}

	if resp.StatusCode >= http.StatusInternalServerError {
		return stsIdentity{}, fmt.Errorf("call STS GetCallerIdentity: %s", resp.Status)
	}

	if resp.StatusCode != http.StatusOK {
		return stsIdentity{}, refusal{
			http.StatusForbidden,
			"STS rejected the proof",
		}
	}

	var answer stsIdentity
	if err := xml.Unmarshal(body, &answer); err != nil {
		return stsIdentity{}, fmt.Errorf("parse the response of STS: %w", err)
	}

	return answer, nil
}

// parseCallerARN returns the account, role, and instance id in
// arn:aws:sts::ACCOUNT:assumed-role/ROLE/INSTANCE. Only EC2 may assume the role, and EC2 sets the
// session name, so a worker cannot choose it. This is true only in this cluster's account: in their
// own account, anyone can create a role and a session with these names. findCallerMachine therefore
// compares the account with the instance's owner.
func (s *Server) parseCallerARN(arn string) (caller, error) {
	fields := strings.Split(arn, ":")
	if len(fields) != 6 || fields[2] != "sts" {
		return caller{}, refusal{http.StatusForbidden, "the proof was not signed by an assumed role"}
	}

	parts := strings.Split(fields[5], "/")
	if len(parts) != 3 || parts[0] != "assumed-role" ||
		!slices.Contains(slices.Collect(maps.Values(s.WorkerRoles)), parts[1]) ||
		!strings.HasPrefix(parts[2], "i-") {
		return caller{}, refusal{
			http.StatusForbidden,
			"the proof was not signed by an instance with a worker role of this cluster",
		}
	}

	return caller{account: fields[4], role: parts[1], instance: parts[2]}, nil
}

func (s *Server) findCallerMachine(ctx context.Context, who caller) (Machine, error) {
	id := who.instance
	m, found, err := s.FindMachine(ctx, id)
	switch {
	case err != nil:
		return Machine{}, fmt.Errorf("find instance %s: %w", id, err)
	case !found:
		return Machine{}, refusal{http.StatusForbidden, "instance " + id + " does not belong to this cluster"}
	case m.Account == "" || m.Account != who.account:
		return Machine{}, refusal{
			http.StatusForbidden,
			"the proof was signed in another account than that of instance " + id,
		}

	case m.State != "running" && m.State != "pending":
		return Machine{}, refusal{http.StatusForbidden, "instance " + id + " is " + m.State}
	case m.Role != "worker" || s.WorkerRoles[m.Group] == "" || s.WorkerRoles[m.Group] != who.role:
		return Machine{}, refusal{
			http.StatusForbidden,
			"instance " + id + " is not a worker in a group of this cluster with the role of the proof",
		}
	}

	if err := s.checkOrigin(ctx, m); err != nil {
		return Machine{}, err
	}

	return m, nil
}

// checkOrigin returns an error unless AWS vouches for what a machine runs: its Auto Scaling group launched it, or it has the
// user data and the image of its group. Anyone with ec2:CreateTags can set the tags that were compared before.
func (s *Server) checkOrigin(ctx context.Context, m Machine) error {
	switch {
	case m.ScalingGroup == m.Group+"."+s.Cluster:
		return nil
	case m.ScalingGroup != "" || s.CheckLaunch == nil:
		return NewNotLaunchedError(s.Cluster, m)
	}

	return s.CheckLaunch(ctx, m)
}

// NewNotLaunchedError returns the refusal of a machine that the Auto Scaling group of its group did not launch.
func NewNotLaunchedError(cluster string, m Machine) error {
	return Forbid("instance " + m.ID + " was not launched by the Auto Scaling group " + m.Group + "." + cluster)
}

// Forbid returns an error with a reason that the machine is told.
func Forbid(reason string) error { return refusal{http.StatusForbidden, reason} }

// NodeUser returns the Kubernetes user name of a node, system:node:NAME.
func NodeUser(name string) string { return "system:node:" + name }

// nodesGroup is the Kubernetes group of all nodes.
const nodesGroup = "system:nodes"

// GroupOrganization returns the organization in a worker's certificate that states its instance group. An admission
// policy compares it with the label of the node.
func GroupOrganization(group string) string { return "slipway:group:" + group }

// InstanceOrganization returns the organization in a worker's certificate that states its instance id. An admission
// policy compares it with the live machine of the node's name.
func InstanceOrganization(id string) string { return "slipway:instance:" + id }

// NodeLeaves returns the certificates of a node to be issued: one for the kubelet as a client of
// kube-apiserver, and one for the kubelet's own server.
func NodeLeaves(name string, address netip.Addr, ttl time.Duration) (client, server pki.Leaf) {
	client = pki.Leaf{
		CN:     NodeUser(name),
		Orgs:   []string{nodesGroup},
		Usages: []pki.Usage{pki.ClientUsage},
		TTL:    ttl,
	}

	server = pki.Leaf{
		CN:     NodeUser(name),
		Orgs:   []string{nodesGroup},
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
	client.Orgs = append(client.Orgs, GroupOrganization(m.Group), InstanceOrganization(m.ID))
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
