// SPDX-License-Identifier: Apache-2.0

package join

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/slipway-k8s/slipway/internal/lib/pki"
)

// Client requests node certificates from a control plane.
type Client struct {
	// URL of the endpoint, https://host:3988.
	URL string
	// HTTP client that trusts the cluster's Kubernetes CA.
	HTTP *http.Client
	// Sign creates the proof of this instance's identity.
	Sign Signer
}

// NodeCredentials holds a node's private key and certificates as PEM.
type NodeCredentials struct {
	// Key is the private key (PKCS #8) of both certificates.
	Key []byte
	Certificates
}

// Join creates a private key and requests certificates for it. The control plane answers with the name of the
// caller's node, which the request does not name. Only the certificate signing request leaves the machine. A
// refusal of the control plane is an error with the HTTP status and the reason.
func (c Client) Join(ctx context.Context) (NodeCredentials, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return NodeCredentials{}, fmt.Errorf("create private key: %w", err)
	}

	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
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

	defer func() { _ = resp.Body.Close() }()
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

	if err := out.checkName(); err != nil {
		return Certificates{}, fmt.Errorf("join %s: read the answer: %w", c.URL, err)
	}

	return out, nil
}

// checkName returns an error unless both certificates are for the named node.
func (c Certificates) checkName() error {
	for _, text := range []string{c.Client, c.Server} {
		certs, err := pki.ParseCerts([]byte(text))
		if err != nil {
			return err
		}

		if len(certs) == 0 || c.Name == "" || certs[0].Subject.CommonName != NodeUser(c.Name) {
			return fmt.Errorf("it has no certificates for the node %q that it names", c.Name)
		}
	}

	return nil
}
