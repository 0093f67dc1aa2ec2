// SPDX-License-Identifier: Apache-2.0

package metricsgate

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/machine/kube"
)

const (
	// Command is the argument of slipway-node that starts the gate.
	Command = "metrics-gate"
	// serviceAccount is the directory with the token and the CA of a pod.
	serviceAccount = "/var/run/secrets/kubernetes.io/serviceaccount"
	// certificateTime is the validity of the gate's certificate, which a start renews.
	certificateTime = 10 * 365 * 24 * time.Hour
)

// Env is what the program needs from its process.
type Env struct {
	// Stderr receives logs and usage messages.
	Stderr io.Writer
	// Getenv reads an environment variable.
	Getenv func(string) string
	// Now is the clock.
	Now func() time.Time
}

// settings are the arguments of the program.
type settings struct {
	listen   string
	audience string
	sources  map[string]Source
}

// Main runs the gate until ctx ends. It runs in a pod, whose service account may create
// TokenReviews and SubjectAccessReviews.
func Main(ctx context.Context, args []string, env Env) error {
	s, err := parseSettings(args, env.Stderr)
	if err != nil {
		return err
	}

	api, err := newAPIClient(env, serviceAccount)
	if err != nil {
		return err
	}

	certificate, err := newCertificate(env.Now())
	if err != nil {
		return err
	}

	gate := &Gate{
		Sources: s.sources,
		Reviews: NewReviewer(api, s.audience, env.Now),
		Client:  NewSourceClient(),
		Token:   func() (string, error) { return readToken(serviceAccount) },
		Log:     slog.New(slog.NewTextHandler(env.Stderr, nil)),
	}

	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", s.listen)
	if err != nil {
		return fmt.Errorf("serve metrics at %s: %w", s.listen, err)
	}

	return serve(ctx, gate, listener, certificate)
}

func parseSettings(args []string, stderr io.Writer) (settings, error) {
	s := settings{sources: map[string]Source{}}
	flags := flag.NewFlagSet(Command, flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&s.listen, "listen", "", "address and port to serve at")
	flags.StringVar(&s.audience, "audience", "", "audience that tokens must have")
	addSource := func(text string) error {
		source, err := ParseSource(text)
		s.sources[source.Name] = source

		return err
	}
	flags.Func("source", "NAME=URL of metrics on the loopback address; may be repeated", addSource)

	if err := flags.Parse(args); err != nil {
		return s, err
	}

	if s.listen == "" || s.audience == "" || len(s.sources) == 0 || flags.NArg() > 0 {
		return s, fmt.Errorf(
			"usage: slipway-node %s --listen ADDRESS:PORT --audience TEXT, and --source NAME=URL for each source",
			Command,
		)
	}

	return s, nil
}

// serve serves until ctx ends.
func serve(ctx context.Context, handler http.Handler, listener net.Listener, certificate tls.Certificate) error {
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    32 << 10,
		ErrorLog:          slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
		TLSConfig: &tls.Config{
			MinVersion:   tls.VersionTLS13,
			Certificates: []tls.Certificate{certificate},
		},
	}

	stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // ends ServeTLS
	defer stop()
	if err := server.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve metrics: %w", err)
	}

	return ctx.Err()
}

// NewSourceClient returns a client of sources. It passes compressed answers on as they are. It does
// not check the certificates of the scheduler and of the controller manager, which sign their own:
// they are on the loopback address.
func NewSourceClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DisableCompression: true,
			TLSClientConfig: &tls.Config{
				MinVersion:         tls.VersionTLS12,
				InsecureSkipVerify: true, //nolint:gosec // only addresses that no other machine has; see ParseSource
			},
			TLSHandshakeTimeout: 5 * time.Second,
			IdleConnTimeout:     2 * time.Minute,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// newAPIClient returns a client of the API server with the pod's service account.
func newAPIClient(env Env, directory string) (kube.Client, error) {
	host, port := env.Getenv("KUBERNETES_SERVICE_HOST"), env.Getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return kube.Client{}, errors.New("KUBERNETES_SERVICE_HOST is not set: the gate runs in a pod")
	}

	body, err := os.ReadFile(filepath.Join(directory, "ca.crt"))
	if err != nil {
		return kube.Client{}, fmt.Errorf("read the CA of the API server: %w", err)
	}

	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(body) {
		return kube.Client{}, fmt.Errorf("%s/ca.crt has no certificate", directory)
	}

	return kube.Client{
		Server: "https://" + net.JoinHostPort(host, port),
		HTTP: &http.Client{
			Timeout: 10 * time.Second,
			Transport: tokenTransport{directory: directory, next: &http.Transport{
				TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots},
			}},
		},
	}, nil
}

// tokenTransport adds the pod's token to each request. The kubelet renews the file.
type tokenTransport struct {
	directory string
	next      http.RoundTripper
}

// RoundTrip sends a request.
func (t tokenTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	token, err := readToken(t.directory)
	if err != nil {
		return nil, err
	}

	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)

	return t.next.RoundTrip(r)
}

func readToken(directory string) (string, error) {
	body, err := os.ReadFile(filepath.Join(directory, "token"))
	if err != nil {
		return "", fmt.Errorf("read the token of the pod: %w", err)
	}

	return strings.TrimSpace(string(body)), nil
}

// newCertificate returns a certificate that signs itself. Prometheus does not check it: see
// docs/design/0026-metrics-gate.md.
func newCertificate(now time.Time) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("generate the key of the gate: %w", err)
	}

	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()),
		Subject:      pkix.Name{CommonName: "slipway-metrics-gate"},
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(certificateTime),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	body, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("sign the certificate of the gate: %w", err)
	}

	return tls.Certificate{Certificate: [][]byte{body}, PrivateKey: key}, nil
}
