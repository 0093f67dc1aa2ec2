// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/lib/asset/assettest"
	"github.com/slipway-k8s/slipway/internal/machine/addon/apitest"
)

const addonsFolder = "../../examples/addons/"

// addonLab is a kube-apiserver without controllers, to which a channel of examples/addons was applied.
type addonLab struct {
	*lab
	realAPI
	dynamic dynamic.Interface
}

// newAddonLab starts a kube-apiserver and applies a channel. No controller sets the status of workloads, so the command does not
// see them become healthy.
func newAddonLab(t *testing.T, channel string) addonLab {
	t.Helper()
	l := addonLab{lab: newLab(t), realAPI: startRealAPI(t, apitest.Options{})}
	l.createCluster()
	var err error
	l.dynamic, err = dynamic.NewForConfig(l.realAPI.config)
	l.check(err)
	_, errs, _ := l.slipway(caller{}, "addons", "apply", "demo", "-f", addonsFolder+channel, "--kubeconfig", l.server.Kubeconfig, "--timeout", "10s", "--yes")
	if out, more, code := l.slipway(caller{}, "addons", "diff", "demo", "-f", addonsFolder+channel, "--kubeconfig", l.server.Kubeconfig); out != "" {
		t.Fatalf("diff has exit code %d after an apply:\n%s%s\nthe apply:\n%s", code, out, more, errs)
	}

	return l
}

// await waits until f returns no error.
func (l addonLab) await(what string, f func() error) {
	l.Helper()
	deadline := time.Now().Add(90 * time.Second)
	for err := f(); err != nil; err = f() {
		if time.Now().After(deadline) {
			l.Fatalf("%s: not within 90 s: %v", what, err)
		}
		time.Sleep(300 * time.Millisecond)
	}
}

// run runs a program until the test ends. What it was forbidden to do, in spite of what the channel gives it, fails the test.
func (l addonLab) run(name, program string, arguments ...string) {
	l.Helper()
	realProgram{
		name:        name,
		path:        program,
		arguments:   arguments,
		environment: []string{"HOME=" + l.dir, "AWS_EC2_METADATA_DISABLED=true"},
		refusals:    []string{"forbidden"},
	}.start(l.T)
}

// apply applies objects of cert-manager's kinds.
func (l addonLab) apply(text string) error {
	for document := range strings.SplitSeq(text, "\n---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &o.Object); err != nil {
			return err
		}
		kind := schema.GroupVersionResource{Group: "cert-manager.io", Version: "v1", Resource: strings.ToLower(o.GetKind()) + "s"}
		var client dynamic.ResourceInterface = l.dynamic.Resource(kind)
		if o.GetNamespace() != "" {
			client = l.dynamic.Resource(kind).Namespace(o.GetNamespace())
		}
		if _, err := client.Apply(l.Context(), o.GetName(), o, metav1.ApplyOptions{FieldManager: "test", Force: true}); err != nil {
			return fmt.Errorf("%s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}

	return nil
}

// startCertManager starts cert-manager's programs with the configuration of the channel and the rights of their accounts. The
// API server reaches the webhook at an address of this computer, since there is no network of Services.
func (l addonLab) startCertManager() {
	l.Helper()
	program := assettest.Program(l.T, certManager, "bin/"+certManager)
	files, err := l.api.CoreV1().ConfigMaps(certManager).Get(l.Context(), certManager, metav1.GetOptions{})
	l.check(err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	l.check(err)
	port := strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)
	l.check(listener.Close())
	for name, change := range map[string]struct {
		account string
		replace []string
		more    string
	}{
		"controller": {certManager, nil, "healthzListenAddress: 127.0.0.1:0\nmetricsListenAddress: 127.0.0.1:0\n"},
		"webhook": {
			certManager + "-webhook",
			[]string{"securePort: 10250", "securePort: " + port, "dnsNames: [", "dnsNames: [localhost, "},
			"healthzPort: 0\nmetricsListenAddress: \"0\"\n",
		},
		"cainjector": {certManager + "-cainjector", nil, "metricsListenAddress: \"0\"\n"},
	} {
		text := strings.NewReplacer(change.replace...).Replace(files.Data[name+".yaml"]) + change.more +
			"kubeConfig: " + l.kubeconfigOf(certManager, change.account) + "\n"
		l.run(name, program, name, "--config="+l.temporaryFile(name+".yaml", text))
	}

	for kind, path := range map[string]string{"validatingwebhookconfigurations": "validate", "mutatingwebhookconfigurations": "mutate"} {
		patch := fmt.Sprintf(`[{"op": "replace", "path": "/webhooks/0/clientConfig", "value": {"url": "https://localhost:%s/%s"}}]`, port, path)
		resource := schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: kind}
		_, err := l.dynamic.Resource(resource).Patch(l.Context(), certManager+"-webhook", types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
		l.check(err)
	}
}

// certificateOf waits for the certificate of a Secret and returns it.
func (l addonLab) certificateOf(namespace, name string) *x509.Certificate {
	l.Helper()
	var leaf *x509.Certificate
	l.await("the certificate of "+namespace+"/"+name, func() error {
		secret, err := l.api.CoreV1().Secrets(namespace).Get(l.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		block, _ := pem.Decode(secret.Data[corev1.TLSCertKey])
		if block == nil {
			return errors.New("the Secret has no certificate yet")
		}
		leaf, err = x509.ParseCertificate(block.Bytes)

		return err
	})

	return leaf
}

// TestRealCertManager: cert-manager's programs, with the channel and the authority of examples/addons, issue the certificate that
// an Ingress asks for, and refuse what the API server alone would accept. They need no rights that the channel does not give. No
// attack: the real program, with its limits.
func TestRealCertManager(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: -short")
	}
	assettest.Program(t, certManager, "bin/"+certManager) // before a cluster is created for nothing
	l := newAddonLab(t, "certificates.yaml")
	l.startCertManager()
	authority, err := os.ReadFile(addonsFolder + "certificate-authority.yaml")
	l.check(err)
	l.await("the webhook answers", func() error { return l.apply(string(authority)) })
	_, err = l.api.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, metav1.CreateOptions{})
	l.check(err)
	_, err = l.api.NetworkingV1().Ingresses("shop").Create(t.Context(), ingressWithCertificate(), metav1.CreateOptions{})
	l.check(err)

	leaf := l.certificateOf("shop", "shop-tls")
	roots := x509.NewCertPool()
	roots.AddCert(l.certificateOf(certManager, "cluster-ca"))
	if _, err := leaf.Verify(x509.VerifyOptions{DNSName: "shop.example.com", Roots: roots}); err != nil {
		t.Errorf("the certificate of the Ingress: %v", err)
	}

	const impossible = `
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: impossible, namespace: shop}
spec: {secretName: impossible, dnsNames: [x.example.com], duration: 1h, renewBefore: 2h, issuerRef: {kind: ClusterIssuer, name: cluster-ca}}`
	if err := l.apply(impossible); err == nil || !strings.Contains(err.Error(), "webhook.cert-manager.io") {
		t.Errorf("a certificate that is renewed before it is issued: %v", err)
	}
	l.checkRights()
}

// ingressWithCertificate is an Ingress that asks the cluster's authority for a certificate.
func ingressWithCertificate() *networkingv1.Ingress {
	return &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Name: "shop", Annotations: map[string]string{"cert-manager.io/cluster-issuer": "cluster-ca"}},
		Spec: networkingv1.IngressSpec{
			TLS:            []networkingv1.IngressTLS{{Hosts: []string{"shop.example.com"}, SecretName: "shop-tls"}},
			DefaultBackend: &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "shop", Port: networkingv1.ServiceBackendPort{Number: 80}}},
		},
	}
}

// checkRights: the accounts of cert-manager can do nothing that would make them administrators or let them run pods.
func (l addonLab) checkRights() {
	l.Helper()
	for _, account := range []string{certManager, certManager + "-webhook", certManager + "-cainjector"} {
		config, err := clientcmd.BuildConfigFromFlags("", l.kubeconfigOf(certManager, account))
		l.check(err)
		api, err := kubernetes.NewForConfig(config)
		l.check(err)
		attempts := map[string]func(context.Context) error{
			"start a pod": func(ctx context.Context) error {
				_, err := api.CoreV1().Pods("kube-system").Create(ctx, &corev1.Pod{}, metav1.CreateOptions{})
				return err
			},
			"get a token of another account": func(ctx context.Context) error {
				_, err := api.CoreV1().ServiceAccounts("kube-system").CreateToken(ctx, "flannel", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
				return err
			},
			"change an Ingress": func(ctx context.Context) error {
				return api.NetworkingV1().Ingresses("shop").Delete(ctx, "shop", metav1.DeleteOptions{})
			},
			"change a role": func(ctx context.Context) error {
				return api.RbacV1().ClusterRoles().Delete(ctx, "view", metav1.DeleteOptions{})
			},
		}
		for what, attempt := range attempts {
			if err := attempt(l.Context()); !apierrors.IsForbidden(err) {
				l.Errorf("%s can %s: %v", account, what, err)
			}
		}
	}
}
