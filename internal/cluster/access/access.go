// SPDX-License-Identifier: Apache-2.0

// Package access gives an administrator access to the Kubernetes API of a cluster: it finds the URL of the
// API, issues short-lived client certificates from the authorities in the state store, and merges them into
// a kubeconfig.
package access

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// APIServerName is in the certificate of every API server, whichever load balancer is in front of it.
const APIServerName = "kubernetes"

// Request asks for access to a cluster as an administrator.
type Request struct {
	// Store is the state store, and Sealer opens its secrets.
	Store  store.Store
	Sealer store.Sealer
	// Cluster is the name of the cluster.
	Cluster string
	// User is added to the subject of the certificate, so that the audit log tells administrators apart. It
	// may be empty.
	User string
	// TTL is how long the certificate is valid. Zero: two hours, longer than slipway waits for a cluster.
	TTL time.Duration
	// LongLiving is set for a client whose requests may take as long as their context allows, such as logs that
	// are followed. Otherwise a request has 30 seconds.
	LongLiving bool
	// Now is the clock.
	Now func() time.Time
	// OnResponse, if set, is called for each answer of the API to a client of NewKubeClient, possibly
	// concurrently. It must not read the body.
	OnResponse func(*http.Response)
}

// Issue finds the URL of the cluster's API and issues an administrator's certificate for it.
func Issue(
	ctx context.Context,
	cfg aws.Config,
	r Request,
) (pki.KubeconfigOptions, error) {
	out, err := describeServer(ctx, cfg, r)
	if err != nil {
		return pki.KubeconfigOptions{}, err
	}

	public, err := clusterstate.LoadTrust(ctx, r.Store, r.Cluster)
	if err != nil {
		return pki.KubeconfigOptions{}, err
	}

	ca, err := public.OpenCA(ctx, r.Store, r.Sealer, r.Cluster, pki.KubernetesCA)
	if err != nil {
		return pki.KubeconfigOptions{}, err
	}

	key, err := pki.NewKey("admin")
	if err != nil {
		return pki.KubeconfigOptions{}, err
	}

	user := "slipway-admin"
	if r.User != "" && len(user)+len(r.User) < 64 {
		user += ":" + r.User
	}

	leaf := pki.Leaf{
		CN:     user,
		Orgs:   []string{pki.AdminGroup},
		Usages: []pki.Usage{pki.ClientUsage},
		TTL:    cmp.Or(r.TTL, clientCertTTL),
	}

	out.CAPEM = ca.CertsPEM()
	if out.CertPEM, err = pki.IssueLeaf(ca, leaf, key.Public(), r.Now()); err != nil {
		return pki.KubeconfigOptions{}, err
	}

	if out.KeyPEM, err = key.PEM(); err != nil {
		return pki.KubeconfigOptions{}, err
	}

	return out, nil
}

// describeServer returns how to reach the cluster's API, without anything that proves who the client is.
func describeServer(ctx context.Context, cfg aws.Config, r Request) (pki.KubeconfigOptions, error) {
	owner, _, err := clusterstate.ReadOwnership(ctx, r.Store, r.Cluster)
	if err != nil {
		return pki.KubeconfigOptions{}, err
	}

	server, err := findServerURL(ctx, cfg, identity{name: r.Cluster, ownership: owner})

	return pki.KubeconfigOptions{Name: r.Cluster, Server: server, TLSServerName: APIServerName}, err
}

// NewKubeClient returns a client of the cluster's API that is an administrator. Its key is kept in memory
// only.
func NewKubeClient(ctx context.Context, cfg aws.Config, r Request) (kubernetes.Interface, error) {
	rc, err := RESTConfig(ctx, cfg, r)
	if err != nil {
		return nil, err
	}

	return kubernetes.NewForConfig(rc)
}

// RESTConfig returns the configuration of such a client.
func RESTConfig(ctx context.Context, cfg aws.Config, r Request) (*rest.Config, error) {
	access, err := Issue(ctx, cfg, r)
	if err != nil {
		return nil, err
	}

	timeout := requestTimeout
	if r.LongLiving {
		timeout = 0
	}

	rc := &rest.Config{
		Host: access.Server,
		TLSClientConfig: rest.TLSClientConfig{
			ServerName: access.TLSServerName,
			CAData:     access.CAPEM,
			CertData:   access.CertPEM,
			KeyData:    access.KeyPEM,
		},
		Timeout: timeout,
		QPS:     -1, // no limit: the API server's own limits are enough, and validate reads all at once
	}
	if r.OnResponse != nil {
		rc.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return responseObserver{next: next, observe: r.OnResponse}
		})
	}

	return rc, nil
}

// responseObserver passes each response to observe.
type responseObserver struct {
	next    http.RoundTripper
	observe func(*http.Response)
}

// RoundTrip implements http.RoundTripper.
func (o responseObserver) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := o.next.RoundTrip(r)
	if err == nil {
		o.observe(resp)
	}

	return resp, err
}

// requestTimeout limits a request of a client that is not long-living.
const requestTimeout = 30 * time.Second

// clientCertTTL is how long the certificates of slipway's own clients are valid: longer than the longest
// wait.
const clientCertTTL = 2 * time.Hour
