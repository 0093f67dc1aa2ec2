// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/slipway-k8s/slipway/internal/lib/asset/assettest"
)

const (
	traefik      = "traefik"
	shopHostname = "shop.example.com"
)

// shopCertificate returns a certificate for the shop and its key, and what trusts it.
func (l addonLab) shopCertificate() (certificate, key []byte, roots *x509.CertPool) {
	l.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	l.check(err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{shopHostname}, NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	l.check(err)
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	l.check(err)
	certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	roots = x509.NewCertPool()
	roots.AppendCertsFromPEM(certificate)

	return certificate, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}), roots
}

// ownAddress returns an address of this computer that endpoints of a Service can have, which are never loopback addresses.
func ownAddress(t *testing.T) string {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	check(t, err)
	for _, a := range addresses {
		if ip, ok := a.(*net.IPNet); ok && ip.IP.To4() != nil && ip.IP.IsGlobalUnicast() {
			return ip.IP.String()
		}
	}
	t.Skip("SKIPPED: this computer has only loopback addresses")

	return ""
}

// createShop creates a Service with an endpoint that answers, and an Ingress of a class, in a namespace.
func (l addonLab) createShop(namespace, class string) (roots *x509.CertPool) {
	l.Helper()
	address := ownAddress(l.T)
	listener, err := net.Listen("tcp", address+":0")
	l.check(err)
	server := &httptest.Server{Listener: listener, Config: &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, namespace) }),
	}}
	server.Start()
	l.Cleanup(server.Close)
	port := int32(listener.Addr().(*net.TCPAddr).Port)
	ctx, name := l.Context(), "shop"
	_, err = l.api.CoreV1().Services(namespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}}},
	}, metav1.CreateOptions{})
	l.check(err)
	protocol := corev1.ProtocolTCP
	_, err = l.api.DiscoveryV1().EndpointSlices(namespace).Create(ctx, &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{address}}},
		Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Port: &port, Protocol: &protocol}},
	}, metav1.CreateOptions{})
	l.check(err)
	certificate, key, roots := l.shopCertificate()
	_, err = l.api.CoreV1().Secrets(namespace).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "shop-tls"}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: key},
	}, metav1.CreateOptions{})
	l.check(err)
	prefix := networkingv1.PathTypePrefix
	_, err = l.api.NetworkingV1().Ingresses(namespace).Create(ctx, &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: networkingv1.IngressSpec{
			IngressClassName: &class,
			TLS:              []networkingv1.IngressTLS{{Hosts: []string{shopHostname}, SecretName: "shop-tls"}},
			Rules: []networkingv1.IngressRule{{Host: shopHostname, IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{
				Paths: []networkingv1.HTTPIngressPath{{Path: "/" + namespace, PathType: &prefix, Backend: networkingv1.IngressBackend{
					Service: &networkingv1.IngressServiceBackend{Name: name, Port: networkingv1.ServiceBackendPort{Number: 80}},
				}}},
			}}}},
		},
	}, metav1.CreateOptions{})
	l.check(err)

	return roots
}

// startTraefik starts Traefik with the arguments of the channel and the rights of its account. It returns its ports by their names.
func (l addonLab) startTraefik(program string) map[string]string {
	l.Helper()
	deployment, err := l.api.AppsV1().Deployments(traefik).Get(l.Context(), traefik, metav1.GetOptions{})
	l.check(err)
	ports := map[string]string{}
	var arguments []string
	for _, a := range deployment.Spec.Template.Spec.Containers[0].Args {
		if entry, _, ok := strings.Cut(strings.TrimPrefix(a, "--entrypoints."), ".address="); ok {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			l.check(err)
			ports[entry] = listener.Addr().String()
			l.check(listener.Close())
			a = "--entrypoints." + entry + ".address=" + ports[entry]
		}
		arguments = append(arguments, a)
	}
	token, err := l.api.CoreV1().ServiceAccounts(traefik).CreateToken(l.Context(), traefik, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	l.check(err)
	const provider = "--providers.kubernetesingress."
	l.run(traefik, program, append(arguments,
		provider+"endpoint="+l.server.URL,
		provider+"token="+token.Status.Token,
		provider+"certauthfilepath="+filepath.Join(filepath.Dir(l.server.Kubeconfig), "apiserver.crt"),
	)...)

	return ports
}

// askShop asks for a path of the shop at an address.
func (l addonLab) askShop(address, path string, roots *x509.CertPool) (string, error) {
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, address)
	}
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DialContext: dial, DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
	}}
	request, err := http.NewRequestWithContext(l.Context(), http.MethodGet, "https://"+shopHostname+path, nil)
	if err != nil {
		return "", err
	}
	answer, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d: %s", answer.StatusCode, body)
	}

	return string(body), err
}

// TestRealTraefik: Traefik, with the arguments and rights of the channel, answers for an Ingress with its certificate, and for none of a
// namespace or class that it was not given. It shows nothing of itself. No attack: the real program, with its limits.
func TestRealTraefik(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: -short")
	}
	program := assettest.Program(t, traefik, "bin/"+traefik)
	l := newAddonLab(t, "ingress.yaml")
	_, err := l.api.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, metav1.CreateOptions{})
	l.check(err)
	roots := l.createShop("default", traefik)
	l.createShop("other", traefik)
	service, err := l.api.CoreV1().Services(traefik).Get(t.Context(), traefik, metav1.GetOptions{})
	l.check(err)
	service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{Hostname: "balancer.example.com"}}
	_, err = l.api.CoreV1().Services(traefik).UpdateStatus(t.Context(), service, metav1.UpdateOptions{})
	l.check(err)
	ports := l.startTraefik(program)

	l.await("the Ingress answers with its certificate", func() error {
		body, err := l.askShop(ports["websecure"], "/default", roots)
		if err == nil && body != "default" {
			err = fmt.Errorf("it answers %q", body)
		}

		return err
	})
	l.await("the Ingress shows the load balancer", func() error {
		got, err := l.api.NetworkingV1().Ingresses("default").Get(t.Context(), "shop", metav1.GetOptions{})
		if err == nil && (len(got.Status.LoadBalancer.Ingress) != 1 || got.Status.LoadBalancer.Ingress[0].Hostname != "balancer.example.com") {
			err = fmt.Errorf("it shows %+v", got.Status.LoadBalancer)
		}

		return err
	})
	for _, path := range []string{"/other", "/dashboard/", "/api/rawdata"} {
		if body, err := l.askShop(ports["websecure"], path, roots); err == nil {
			t.Errorf("Traefik answers at %s: %s", path, body)
		}
	}
	for path, want := range map[string]int{"/ping": http.StatusOK, "/dashboard/": http.StatusNotFound, "/api/rawdata": http.StatusNotFound, "/debug/vars": http.StatusNotFound} {
		answer, err := http.Get("http://" + ports[traefik] + path)
		l.check(err)
		l.check(answer.Body.Close())
		if answer.StatusCode != want {
			t.Errorf("%s of Traefik's own port has status %d, want %d", path, answer.StatusCode, want)
		}
	}
	l.checkTraefikRights()
}

// checkTraefikRights: the account of Traefik reads no Secret of another namespace, and changes nothing.
func (l addonLab) checkTraefikRights() {
	l.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", l.kubeconfigOf(traefik, traefik))
	l.check(err)
	api, err := kubernetes.NewForConfig(config)
	l.check(err)
	_, other := api.CoreV1().Secrets("other").Get(l.Context(), "shop-tls", metav1.GetOptions{})
	_, all := api.CoreV1().Secrets("").List(l.Context(), metav1.ListOptions{})
	deletion := api.CoreV1().Secrets("default").Delete(l.Context(), "shop-tls", metav1.DeleteOptions{})
	route := api.NetworkingV1().Ingresses("default").Delete(l.Context(), "shop", metav1.DeleteOptions{})
	for what, err := range map[string]error{
		"read a Secret of another namespace": other, "list all Secrets": all, "delete a Secret": deletion, "delete an Ingress": route,
	} {
		if !apierrors.IsForbidden(err) {
			l.Error(errors.Join(fmt.Errorf("Traefik can %s", what), err))
		}
	}
}
