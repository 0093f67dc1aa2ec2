// SPDX-License-Identifier: Apache-2.0

package access

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/join"
)

// TokenRequest says for which cluster a token is.
type TokenRequest struct {
	// ClusterID is the random id of the cluster.
	ClusterID string
	// Endpoint is the URL of STS that the control plane asks. Empty: that of the region.
	Endpoint string
	// Now is the clock.
	Now func() time.Time
}

// execCredential is what kubectl reads from a program that prints credentials.
type execCredential struct {
	APIVersion string     `json:"apiVersion"`
	Kind       string     `json:"kind"`
	Status     execStatus `json:"status"`
}

type execStatus struct {
	ExpirationTimestamp string `json:"expirationTimestamp"`
	Token               string `json:"token"`
}

// NewExecCredential returns a token for a cluster as kubectl reads it. It makes no request to the cluster or to STS:
// the API server finds out whose the token is.
func NewExecCredential(ctx context.Context, cfg aws.Config, r TokenRequest) ([]byte, error) {
	endpoint := r.Endpoint
	if endpoint == "" {
		endpoint = join.STSEndpoint(aws.ToString(cfg.BaseEndpoint), cfg.Region)
	}

	signer := join.Signer{Credentials: cfg.Credentials, Region: cfg.Region, Endpoint: endpoint, Now: r.Now}
	token, expires, err := signer.CreateToken(ctx, r.ClusterID)
	if err != nil {
		return nil, err
	}

	status := execStatus{
		ExpirationTimestamp: expires.UTC().Format(time.RFC3339),
		Token:               token,
	}
	credential := execCredential{APIVersion: pki.ExecAPIVersion, Kind: "ExecCredential", Status: status}
	text, err := json.Marshal(credential)
	if err != nil {
		return nil, fmt.Errorf("encode a token: %w", err)
	}

	return append(text, '\n'), nil
}

// FindClusterID returns the random id of a cluster, which tokens are bound to.
func FindClusterID(ctx context.Context, s store.Store, name string) (string, error) {
	owner, _, err := clusterstate.ReadOwnership(ctx, s, name)
	if err != nil {
		return "", err
	}

	if owner.ID == "" {
		return "", diag.WithHint(
			fmt.Errorf("cluster %s has no id", name),
			"an apply gives it one: slipway apply "+name+" --yes",
		)
	}

	return owner.ID, nil
}

// DescribeWithoutKey returns how to reach a cluster with a command that prints tokens. It opens no key of the cluster.
func DescribeWithoutKey(ctx context.Context, cfg aws.Config, r Request, command []string) (pki.KubeconfigOptions, error) {
	out, err := describeServer(ctx, cfg, r)
	if err != nil {
		return pki.KubeconfigOptions{}, err
	}

	public, err := clusterstate.LoadTrust(ctx, r.Store, r.Cluster)
	if err != nil {
		return pki.KubeconfigOptions{}, err
	}

	out.CAPEM = []byte(public.CAs[pki.KubernetesCA])
	out.Command = command

	return out, nil
}
