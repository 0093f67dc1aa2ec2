// SPDX-License-Identifier: Apache-2.0

// Package oidcdiscovery builds and reads the two documents with which everybody can verify tokens of a cluster's
// service accounts: the OpenID Connect discovery document and the JSON Web Key Set that it names.
//
// The discovery document also has the random id of the cluster, so that a cluster never overwrites the documents of
// another one of the same name. The package does not know where the documents are stored.
package oidcdiscovery

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
)

// The paths of the documents below the issuer's URL. OpenID Connect Discovery 1.0 sets the first, and Kubernetes uses
// the second.
const (
	ConfigurationPath = ".well-known/openid-configuration"
	KeySetPath        = "openid/v1/jwks"
)

// maxDocument is the size of the largest document that is read, in bytes.
const maxDocument = 1 << 20

// algorithm is that of signatures with the cluster's keys, which are on the curve P-256.
const algorithm = "ES256"

// Configuration is the discovery document of an issuer.
type Configuration struct {
	// Issuer is the URL of the issuer, the claim iss of its tokens.
	Issuer string `json:"issuer"`
	// KeySetURL is the URL of the public keys.
	KeySetURL string `json:"jwks_uri"`
	// AuthorizationEndpoint is required by the specification. Nobody can authorize with a cluster.
	AuthorizationEndpoint string `json:"authorization_endpoint"`
	// ResponseTypes, SubjectTypes, Algorithms and Claims are as Kubernetes has them.
	ResponseTypes []string `json:"response_types_supported"`
	SubjectTypes  []string `json:"subject_types_supported"`
	Algorithms    []string `json:"id_token_signing_alg_values_supported"`
	Claims        []string `json:"claims_supported"`
	// ClusterID is the random id of the cluster, which no other reader uses.
	ClusterID string `json:"slipway_cluster_id"`
}

// key is a public key of a JSON Web Key Set.
type key struct {
	Use       string `json:"use"`
	Type      string `json:"kty"`
	ID        string `json:"kid"`
	Curve     string `json:"crv"`
	Algorithm string `json:"alg"`
	X         string `json:"x"`
	Y         string `json:"y"`
}

// EncodeConfiguration returns the discovery document of the issuer of a cluster.
func EncodeConfiguration(issuer, clusterID string) ([]byte, error) {
	if issuer == "" || clusterID == "" {
		return nil, errors.New("a discovery document needs an issuer and a cluster id")
	}

	return encode(Configuration{
		Issuer:                issuer,
		KeySetURL:             issuer + "/" + KeySetPath,
		AuthorizationEndpoint: "urn:kubernetes:programmatic_authorization",
		ResponseTypes:         []string{"id_token"},
		SubjectTypes:          []string{"public"},
		Algorithms:            []string{algorithm},
		Claims:                []string{"sub", "iss"},
		ClusterID:             clusterID,
	})
}

// ParseConfiguration reads a discovery document. Fields that it does not know are ignored.
func ParseConfiguration(document []byte) (Configuration, error) {
	var c Configuration
	if len(document) > maxDocument {
		return c, errors.New("the discovery document is too large")
	}

	if err := json.Unmarshal(document, &c); err != nil {
		return Configuration{}, fmt.Errorf("parse the discovery document: %w", err)
	}

	return c, nil
}

// EncodeKeySet returns the JSON Web Key Set of public keys in PEM, in their order. The ids of the keys are those that
// Kubernetes writes into tokens. A block that is no public key on the curve P-256 is an error, as is a private key.
func EncodeKeySet(publicKeys []byte) ([]byte, error) {
	set := struct {
		Keys []key `json:"keys"`
	}{Keys: []key{}}
	seen := map[string]bool{}
	rest := publicKeys

	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}

		k, err := encodeKey(block)
		if err != nil {
			return nil, fmt.Errorf("public key %d of the service accounts: %w", len(set.Keys)+1, err)
		}

		if !seen[k.ID] {
			set.Keys = append(set.Keys, k)
		}

		seen[k.ID] = true
	}

	if len(set.Keys) == 0 || len(bytes.TrimSpace(rest)) > 0 {
		return nil, errors.New("the public keys of the service accounts are not PEM")
	}

	return encode(set)
}

func encodeKey(block *pem.Block) (key, error) {
	if block.Type != "PUBLIC KEY" {
		return key{}, fmt.Errorf("is a PEM block of type %q, not a PUBLIC KEY", block.Type)
	}

	parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return key{}, err
	}

	public, ok := parsed.(*ecdsa.PublicKey)
	if !ok || public.Curve != elliptic.P256() {
		return key{}, errors.New("is not on the curve P-256")
	}

	point, err := public.Bytes() // uncompressed: 4, then the coordinates
	if err != nil {
		return key{}, err
	}

	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return key{}, err
	}

	sum := sha256.Sum256(der)
	coordinates := point[1:]
	half := len(coordinates) / 2

	return key{
		Use:       "sig",
		Type:      "EC",
		ID:        base64.RawURLEncoding.EncodeToString(sum[:]),
		Curve:     "P-256",
		Algorithm: algorithm,
		X:         base64.RawURLEncoding.EncodeToString(coordinates[:half]),
		Y:         base64.RawURLEncoding.EncodeToString(coordinates[half:]),
	}, nil
}

// encode returns v as JSON with a newline at the end.
func encode(v any) ([]byte, error) {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode a discovery document: %w", err)
	}

	return append(b, '\n'), nil
}
