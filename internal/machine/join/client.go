// SPDX-License-Identifier: Apache-2.0

package join

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// Client asks a control plane for this machine's node certificates.
type Client struct {
	// URL of the endpoint, https://host:3988.
	URL  string
	HTTP *http.Client
	Sign Signer
}

// NodeCredentials is a node's key and certificates as PEM.
type NodeCredentials struct {
	Key []byte
	Certificates
}

// Join makes a new key and gets certificates for it. Only the certificate request leaves the machine.
func (c Client) Join(ctx context.Context, name string) (NodeCredentials, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return NodeCredentials{}, fmt.Errorf("make a key: %w", err)
	}

	der, err := x509.CreateCertificateRequest(
		rand.Reader,
		&x509.CertificateRequest{Subject: pkix.Name{CommonName: NodeUser(name)}},
		key,
	)
	if err != nil {
		return NodeCredentials{}, fmt.Errorf("make a certificate request: %w", err)
	}

	csr := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	certs, err := c.requestCertificates(ctx, csr)
	if err != nil {
		return NodeCredentials{}, err
	}

	text, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return NodeCredentials{}, fmt.Errorf("encode a key: %w", err)
	}

	return NodeCredentials{
		Key:          pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text}),
		Certificates: certs,
	}, nil
}

func (c Client) requestCertificates(ctx context.Context, csr []byte) (Certificates, error) {
	proof, err := c.Sign.CreateProof(ctx, csr)
	if err != nil {
		return Certificates{}, err
	}

	body, err := json.Marshal(certificateRequest{CSR: string(csr), Proof: proof})
	if err != nil {
		return Certificates{}, fmt.Errorf("join %s: %w", c.URL, err)
	}

	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL+certificatePath, bytes.NewReader(body))
	if err != nil {
		return Certificates{}, fmt.Errorf("join %s: %w", c.URL, err)
	}

	req.Header.Set("Content-Type", "application/json")
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return Certificates{}, fmt.Errorf("join %s: %w", c.URL, err)
	}

	defer resp.Body.Close() //nolint:errcheck // read below
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return Certificates{}, fmt.Errorf("join %s: %w", c.URL, err)
	}

	if resp.StatusCode != http.StatusOK {
		return Certificates{}, fmt.Errorf(
			"join %s: %s: %s",
			c.URL,
			resp.Status,
			strings.TrimSpace(string(answer)),
		)
	}

	var out Certificates
	if err := json.Unmarshal(answer, &out); err != nil {
		return Certificates{}, fmt.Errorf("join %s: read the answer: %w", c.URL, err)
	}

	return out, nil
}
