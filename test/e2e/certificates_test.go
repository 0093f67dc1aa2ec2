// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"path/filepath"
	"time"
)

const certManager = "cert-manager"

// applyCertificates applies the channel of cert-manager; nothing is left to do afterwards.
func applyCertificates(e *environment) {
	e.applyChannel("certificates.yaml", certManager, nil, "cert-manager-crds.yaml")
}

// checkCertificate makes an authority of the cluster's own, as soon as the webhook of cert-manager answers, and has it issue a
// certificate.
func checkCertificate(e *environment) {
	start := time.Now()
	e.waitUntil("the authority is accepted", 2*time.Minute, func() error {
		if r := e.tryKubectl("apply", "-f", addonsFolder+"certificate-authority.yaml"); r.code != 0 {
			return fmt.Errorf("exit status %d: %s%s", r.code, r.out, r.err)
		}

		return nil
	})
	e.t.Logf("COUNT the webhook of cert-manager answers after %s", time.Since(start).Round(time.Second))
	e.kubectl("wait", "clusterissuer/cluster-ca", "--for=condition=Ready", "--timeout=120s", "--request-timeout=0")
	file := filepath.Join(e.t.TempDir(), "certificate.yaml")
	writeFile(e.t, file, `
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: internal, namespace: default}
spec: {secretName: internal-tls, dnsNames: [web.default.svc], issuerRef: {kind: ClusterIssuer, name: cluster-ca}}
`)
	start = time.Now()
	e.kubectl("apply", "-f", file)
	e.kubectl("wait", "certificate/internal", "--for=condition=Ready", "--timeout=120s", "--request-timeout=0")
	e.t.Logf("COUNT the certificate is issued after %s\n%s", time.Since(start).Round(time.Second), e.kubectl("get", "certificate", "internal"))
}
