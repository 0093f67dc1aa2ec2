// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// describeAuthority returns the Kubernetes CA that the machines of a new launch template trust, by its fingerprint. It
// returns nil if the node document is not known. A change of an existing template shows all authorities that differ.
func (in Input) describeAuthority(s plan.Step) []string {
	template, ok := in.resourceOf(s).(awskind.LaunchTemplate)
	if !ok || s.Action != plan.Create || in.Document == nil {
		return nil
	}

	_, key, ok := FindDocument(template.Data.UserData.String())
	if !ok {
		return nil
	}

	body, ok := in.Document(key)
	if !ok {
		return nil
	}

	var document struct {
		Trust node.TrustBundle `json:"trust"`
	}
	if err := json.Unmarshal(body, &document); err != nil || document.Trust.KubernetesCA == "" {
		return nil
	}

	return []string{"Kubernetes CA: " + DescribeTrust(document.Trust.KubernetesCA)}
}

// DescribeTrust returns the subject, the end and the SHA-256 fingerprint of each certificate of a text, as
// 'openssl x509 -fingerprint -sha256' computes it, so that an authority that somebody added stands out. Of anything
// else it returns the size and the hash.
func DescribeTrust(text string) string {
	var out []string

	for rest := []byte(strings.TrimSpace(text)); len(rest) > 0; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return summarize(text)
		}

		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return summarize(text)
		}

		out = append(out, fmt.Sprintf(
			"%s until %s, sha256 %x",
			certificate.Subject,
			certificate.NotAfter.UTC().Format(time.DateOnly),
			sha256.Sum256(certificate.Raw),
		))
	}

	return strings.Join(out, "; ")
}
