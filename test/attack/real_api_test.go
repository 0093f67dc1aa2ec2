// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/machine/addon/apitest"
)

// realAPI is a kube-apiserver without controllers, with a client of an administrator.
type realAPI struct {
	t      *testing.T
	server apitest.Server
	config *rest.Config
	api    kubernetes.Interface
}

func startRealAPI(t *testing.T, o apitest.Options) realAPI {
	t.Helper()
	r := realAPI{t: t, server: apitest.StartWith(t, o)}
	var err error
	r.config, err = clientcmd.BuildConfigFromFlags("", r.server.Kubeconfig)
	check(t, err)
	r.api, err = kubernetes.NewForConfig(r.config)
	check(t, err)

	return r
}

// signWith returns the options of an API server that signs the tokens of service accounts with a key, as an issuer; an empty one is
// that of a test.
func signWith(t *testing.T, key pki.Key, issuer string) apitest.Options {
	t.Helper()
	private, err := key.PEM()
	check(t, err)
	public, err := key.PublicPEM()
	check(t, err)

	return apitest.Options{Issuer: issuer, SigningKey: private, VerificationKey: public}
}

// accountToken returns a token of a service account, which exists.
func (r realAPI) accountToken(namespace, account string, audiences ...string) string {
	r.t.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}
	out, err := r.api.CoreV1().ServiceAccounts(namespace).CreateToken(r.t.Context(), account, request, metav1.CreateOptions{})
	check(r.t, err)

	return out.Status.Token
}

// kubeconfigOf returns a file with which a program has the rights of a service account.
func (r realAPI) kubeconfigOf(namespace, account string) string {
	r.t.Helper()
	config, err := clientcmd.LoadFromFile(r.server.Kubeconfig)
	check(r.t, err)
	config.AuthInfos["test"].Token = r.accountToken(namespace, account)
	path := filepath.Join(r.t.TempDir(), account+".kubeconfig")
	check(r.t, clientcmd.WriteToFile(*config, path))

	return path
}

// containerEnvironment returns the environment of a container of kube-system, with a token of its account as the identity in AWS,
// and a region in the place of AWS.
func (r realAPI) containerEnvironment(l *lab, container corev1.Container, account string) []string {
	r.t.Helper()
	out := []string{"HOME=" + l.dir}
	for _, v := range container.Env {
		switch v.Name {
		case "AWS_WEB_IDENTITY_TOKEN_FILE":
			v.Value = l.temporaryFile("token", r.accountToken("kube-system", account, "sts.amazonaws.com"))
		case "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_STS":
			v.Value = l.region.URL
		}
		out = append(out, v.Name+"="+v.Value)
	}

	return out
}

// realProgram is a program that a test runs as a cluster does.
type realProgram struct {
	name, path             string
	arguments, environment []string
	// refusals are what its log has if it lacks a right that the channel gives it: such a line fails the test.
	refusals []string
}

// start runs the program until the test ends or stop is called.
func (p realProgram) start(t *testing.T) (stop func()) {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.Command(p.path, p.arguments...)
	cmd.Env = p.environment
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	check(t, cmd.Start())
	stop = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	t.Cleanup(func() {
		stop()
		text := out.String()
		for line := range strings.Lines(text) {
			for _, refusal := range p.refusals {
				if strings.Contains(line, refusal) {
					t.Errorf("%s lacks a right: %s", p.name, line)
				}
			}
		}
		if t.Failed() {
			t.Logf("%s:\n%s", p.name, text[max(0, len(text)-12000):])
		}
	})

	return stop
}
