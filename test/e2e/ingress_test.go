// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const (
	traefik      = "traefik"
	shopHostname = "shop.example.com"
)

// TestIngress installs the real cert-manager and Traefik with the channels of examples/addons. An Ingress gets a certificate of
// the cluster's own authority and answers with it through a load balancer, also while Traefik is restarted.
func TestIngress(t *testing.T) {
	skipUnlessLong(t)
	e := newEnvironment(t)
	e.runSteps(t, []step{
		{"up", createClusterWithLoadBalancers},
		{"the channel of load balancers is applied", applyLoadBalancers},
		{"the channel of certificates is applied", applyCertificates},
		{"a certificate is issued", checkCertificate},
		{"the channel of Ingresses is applied", applyIngress},
		{"an Ingress answers with its certificate", checkIngress},
		{"no request fails while Traefik is restarted", checkIngressWhileRestarted},
		{"nothing but the two ports is reachable", checkIngressPorts},
		{"delete leaves nothing", deleteWithIngress},
	})
}

// createClusterWithLoadBalancers creates a cluster in which the cloud controller manager has an IAM role.
func createClusterWithLoadBalancers(e *environment) {
	e.createClusterWithRoles(map[string]map[string]string{cloudController: {"CLUSTER": clusterName}})
}

// applyIngress applies the channel of Traefik.
func applyIngress(e *environment) {
	e.applyChannel("ingress.yaml", traefik, nil)
}

// shop is a Deployment with a Service, and an Ingress with a certificate.
const shop = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop, namespace: default}
spec:
  replicas: 2
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}}
    spec:
      automountServiceAccountToken: false
      containers:
      - name: shop
        image: %s
        ports: [{containerPort: 8080}]
        securityContext: {allowPrivilegeEscalation: false, runAsNonRoot: true, runAsUser: 65534, capabilities: {drop: [ALL]}, seccompProfile: {type: RuntimeDefault}}
---
apiVersion: v1
kind: Service
metadata: {name: shop, namespace: default}
spec:
  selector: {app: shop}
  ports: [{port: 80, targetPort: 8080}]
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: shop
  namespace: default
  annotations: {cert-manager.io/cluster-issuer: cluster-ca}
spec:
  ingressClassName: traefik
  tls: [{hosts: [` + shopHostname + `], secretName: shop-tls}]
  rules:
  - host: ` + shopHostname + `
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: shop, port: {number: 80}}}}]}
`

// authorityOfCluster returns the certificate of the cluster's own authority.
func (e *environment) authorityOfCluster() *x509.CertPool {
	e.t.Helper()
	encoded := e.kubectl("get", "secret", "-n", certManager, "cluster-ca", "-o", `jsonpath={.data.tls\.crt}`)
	text, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		e.t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		e.t.Fatalf("Secret cluster-ca has no certificate: %s", text)
	}

	return roots
}

// addressOfIngress returns the address of the load balancer that the Ingress shows.
func (e *environment) addressOfIngress() string {
	e.t.Helper()
	var host string
	e.waitUntil("the Ingress has an address", 3*time.Minute, func() error {
		host = e.kubectl("get", "ingress", "shop", "-o", "jsonpath={.status.loadBalancer.ingress[0].hostname}")
		if host == "" {
			return fmt.Errorf("it has none:\n%s", e.kubectl("get", "service,pods", "-n", traefik, "-o", "wide"))
		}

		return nil
	})

	return e.addressOfService(host)
}

// getShop asks for a page of the shop at an address, as a client that trusts the cluster's own authority alone.
func (e *environment) getShop(address string, roots *x509.CertPool) error {
	ctx, cancel := context.WithTimeout(e.t.Context(), 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+shopHostname+"/hostname", nil)
	if err != nil {
		return err
	}
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, net.JoinHostPort(address, "443"))
	}
	client := http.Client{Transport: &http.Transport{
		DialContext: dial, DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
	}}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err == nil && (answer.StatusCode != http.StatusOK || !strings.HasPrefix(string(body), "shop-")) {
		err = fmt.Errorf("status %d: %s", answer.StatusCode, body)
	}

	return err
}

// checkIngress applies the shop and waits until it answers with its certificate.
func checkIngress(e *environment) {
	file := filepath.Join(e.t.TempDir(), "shop.yaml")
	writeFile(e.t, file, fmt.Sprintf(shop, probeImage))
	start := time.Now()
	e.kubectl("apply", "-f", file)
	e.kubectl("wait", "deployment/shop", "--for=condition=Available", "--timeout=180s", "--request-timeout=0")
	address := e.addressOfIngress()
	e.t.Logf("COUNT the Ingress has an address after %s", time.Since(start).Round(time.Second))
	roots := e.authorityOfCluster()
	e.waitUntil("the Ingress answers with its certificate", 2*time.Minute, func() error { return e.getShop(address, roots) })
	e.t.Logf("COUNT the Ingress answers with its certificate after %s\n%s", time.Since(start).Round(time.Second), e.kubectl("get", "ingress", "shop"))
}

// checkIngressWhileRestarted asks for pages while both pods of Traefik are replaced.
func checkIngressWhileRestarted(e *environment) {
	address, roots := e.addressOfIngress(), e.authorityOfCluster()
	e.kubectl("rollout", "restart", "-n", traefik, "deployment/"+traefik)
	asked, failed, deadline := 0, []string{}, time.Now().Add(5*time.Minute)
	for ; time.Now().Before(deadline); asked++ {
		if err := e.getShop(address, roots); err != nil {
			failed = append(failed, err.Error())
		}
		rollout := e.tryKubectl("rollout", "status", "-n", traefik, "deployment/"+traefik, "--watch=false")
		pods := e.tryKubectl("get", "pods", "-n", traefik, "-l", "app="+traefik, "-o", "name")
		if strings.Contains(rollout.out, "successfully rolled out") && strings.Count(pods.out, "pod/") == 2 {
			break // the earlier pods have ended
		}
		time.Sleep(200 * time.Millisecond)
	}
	e.kubectl("rollout", "status", "-n", traefik, "deployment/"+traefik, "--timeout=180s", "--request-timeout=0")
	if len(failed) > 0 {
		e.t.Errorf("%d of %d requests failed while Traefik was restarted; the first one: %s", len(failed), asked, failed[0])
	}
	e.t.Logf("COUNT requests while Traefik was restarted: %d, failed: %d", asked, len(failed))
}

// checkIngressPorts connects from a pod of the shop to pages of Traefik's and cert-manager's pods that no policy allows.
func checkIngressPorts(e *environment) {
	pod := e.kubectl("get", "pods", "-l", "app=shop", "-o", "jsonpath={.items[0].metadata.name}")
	for namespace, page := range map[string]string{traefik: ":8080/ping", certManager: ":9402/metrics"} {
		addresses := strings.Fields(e.kubectl("get", "pods", "-n", namespace, "-l", "app="+namespace, "-o", "jsonpath={.items[*].status.podIP}"))
		if len(addresses) == 0 {
			e.t.Errorf("namespace %s has no pods", namespace)
		}
		for _, address := range addresses {
			if r := e.tryKubectl("exec", pod, "--", "/probe", "get", "http://"+address+page); r.code == 0 {
				e.t.Errorf("a pod of the shop reads http://%s%s:\n%s", address, page, r.out)
			}
		}
	}
}

// deleteWithIngress deletes the Ingress and Traefik with its load balancer, and then the cluster.
func deleteWithIngress(e *environment) {
	e.kubectl("delete", "ingress", "shop")
	e.runSlipway("addons", "delete", traefik, "--name", clusterName, "--yes")
	e.waitUntil("the load balancer of Traefik is gone", 2*time.Minute, e.checkNoServiceBalancer)
	e.runSlipway("delete", "cluster", clusterName, "--yes")
}
