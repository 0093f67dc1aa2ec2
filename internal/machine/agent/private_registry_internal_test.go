// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ecr"
	"github.com/aws/aws-sdk-go-v2/service/ecr/types"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/lib/ecrlogin"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
)

const (
	privateHost  = "123456789012.dkr.ecr.eu-west-1.amazonaws.com"
	privatePause = privateHost + "/mirror/registry.k8s.io/pause@sha256:1234"
	secretToken  = "a-very-secret-token"
)

// fakeECR issues tokens that are valid for 12 hours.
type fakeECR struct {
	now     func() time.Time
	err     error
	issued  int
	regions []string
}

func (f *fakeECR) open(region string) ecrlogin.API {
	f.regions = append(f.regions, region)
	return f
}

func (f *fakeECR) GetAuthorizationToken(
	context.Context, *ecr.GetAuthorizationTokenInput, ...func(*ecr.Options),
) (*ecr.GetAuthorizationTokenOutput, error) {
	if f.err != nil {
		return nil, f.err
	}
	f.issued++
	token := base64.StdEncoding.EncodeToString([]byte("AWS:" + secretToken))
	expires := f.now().Add(12 * time.Hour)

	return &ecr.GetAuthorizationTokenOutput{
		AuthorizationData: []types.AuthorizationData{{AuthorizationToken: &token, ExpiresAt: &expires}},
	}, nil
}

// fakeImages are images in memory.
type fakeImages struct {
	mu     sync.Mutex
	has    map[string]bool
	pulled []string
	used   registryCredentials
}

func (f *fakeImages) Pull(_ context.Context, ref string, c registryCredentials) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pulled = append(f.pulled, ref)
	f.used = c
	f.has[ref] = true

	return nil
}

func (f *fakeImages) Has(_ context.Context, ref string) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()

	return f.has[ref], nil
}

// privateLab is an agent whose images come from a private registry.
type privateLab struct {
	*Agent
	ecr    *fakeECR
	images *fakeImages
	clock  time.Time
	log    *bytes.Buffer
	runs   *[]string
}

// recorder records the command lines of programs, and runs none.
type recorder struct{ runs *[]string }

func (r recorder) Run(_ context.Context, name string, args ...string) (string, error) {
	*r.runs = append(*r.runs, name+" "+strings.Join(args, " "))
	return "active", nil
}

func newPrivateLab(t *testing.T) *privateLab {
	t.Helper()
	l := &privateLab{Agent: testAgent(t), clock: time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC), log: &bytes.Buffer{}, runs: new([]string)}
	l.ecr = &fakeECR{now: func() time.Time { return l.clock }}
	l.images = &fakeImages{has: map[string]bool{}}
	l.Now = l.ecr.now
	l.Registry = l.ecr.open
	l.Images = l.images
	l.Run = recorder{l.runs}
	l.Log = slog.New(slog.NewTextHandler(l.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	for name := range l.doc.Images {
		l.doc.Images[name] = privateHost + "/mirror/registry.k8s.io/" + name + "@sha256:1234"
	}

	return l
}

// TestRegistryTokenIsRenewed: the agent gets one token, renews it when six hours are left, and keeps the old one while Amazon
// ECR fails.
func TestRegistryTokenIsRenewed(t *testing.T) {
	t.Parallel()
	l := newPrivateLab(t)
	for _, step := range []struct {
		after time.Duration
		err   error
		want  int
	}{{0, nil, 1}, {5 * time.Hour, nil, 1}, {2 * time.Hour, errors.New("throttled"), 1}, {time.Minute, nil, 2}} {
		l.clock = l.clock.Add(step.after)
		l.ecr.err = step.err
		if err := keepRegistryToken(t.Context(), l.Agent); (err != nil) != (step.err != nil) || l.ecr.issued != step.want {
			t.Fatalf("at %s: %d tokens, %v, want %d", l.clock, l.ecr.issued, err, step.want)
		}
		if got := readRegistryToken(l.Root); !got.isValidFor(privateHost, l.clock, time.Hour) {
			t.Errorf("at %s the stored token is not valid", l.clock)
		}
	}
	if diff := cmp.Diff([]string{"eu-west-1", "eu-west-1", "eu-west-1"}, l.ecr.regions); diff != "" {
		t.Error(diff)
	}

	l.doc.Images = map[string]string{"pause": "registry.k8s.io/pause@sha256:1234"}
	if err := keepRegistryToken(t.Context(), l.Agent); err != nil || l.Root.Exists(registryTokenPath) {
		t.Errorf("without a private registry the token is still there: %v", err)
	}
}

// TestRegistryTokenStaysSecret: the token is in one file on the tmpfs, which only root reads, and in no command line, log
// or error.
func TestRegistryTokenStaysSecret(t *testing.T) {
	t.Parallel()
	l := newPrivateLab(t)
	if err := l.startServices(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	pullImages(t.Context(), l.withSocket(t), "pause", "kube-apiserver")
	if len(l.images.pulled) != 2 || l.images.used != (registryCredentials{User: "AWS", Password: secretToken}) {
		t.Errorf("pulled %q with the credentials of %q", l.images.pulled, l.images.used.User)
	}
	if l.ecr.issued != 1 {
		t.Errorf("%d tokens for two images", l.ecr.issued)
	}

	info, err := os.Stat(l.Root.Path(registryTokenPath))
	if err != nil || info.Mode().Perm() != 0o600 || !strings.HasPrefix(registryTokenPath, "/run/") {
		t.Errorf("the token's file %s: %v, %v", registryTokenPath, info, err)
	}
	visible := l.log.String() + strings.Join(*l.runs, "\n") + strings.Join(l.Root.Changes(), "\n")
	if strings.Contains(visible, secretToken) {
		t.Errorf("the token is visible:\n%s", visible)
	}
	files, err := l.machineFiles()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if bytes.Contains(f.Body, []byte(secretToken)) {
			t.Errorf("the token is in %s", f.Path)
		}
	}
}

// withSocket returns the agent of a machine whose containerd runs.
func (l *privateLab) withSocket(t *testing.T) *Agent {
	t.Helper()
	if _, err := l.Root.Write(File{Path: containerdSocket, Mode: 0o600}); err != nil {
		t.Fatal(err)
	}

	return l.Agent
}

// TestSandboxImageIsPulled: containerd has no credentials when it pulls the image of sandboxes itself, so the agent pulls it,
// and again if it is gone. Without a token the kubelet is started all the same.
func TestSandboxImageIsPulled(t *testing.T) {
	t.Parallel()
	l := newPrivateLab(t)
	for range 2 {
		if err := keepRegistry(t.Context(), l.Agent); err != nil {
			t.Fatal(err)
		}
	}
	clear(l.images.has)
	if err := keepRegistry(t.Context(), l.Agent); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{privatePause, privatePause}, l.images.pulled); diff != "" {
		t.Error(diff)
	}

	other := newPrivateLab(t)
	other.ecr.err = errors.New("AccessDeniedException")
	if err := other.startServices(t.Context(), map[string]bool{kube.CredentialProviderConfigPath: true}); err != nil {
		t.Errorf("without a token: %v", err)
	}
	if got := strings.Join(*other.runs, "\n"); !strings.Contains(got, "systemctl restart --no-block kubelet") {
		t.Errorf("the kubelet does not read its new credential provider:\n%s", got)
	}
	if !strings.Contains(other.log.String(), "cannot log in to the registry") {
		t.Errorf("nothing is logged: %s", other.log)
	}
}

// TestCredentialProvider: the kubelet gets the token for the registry's images, and nothing for others or from an old token.
func TestCredentialProvider(t *testing.T) {
	t.Parallel()
	l := newPrivateLab(t)
	if err := keepRegistryToken(t.Context(), l.Agent); err != nil {
		t.Fatal(err)
	}
	ask := func(image string) (string, error) {
		var out bytes.Buffer
		request := `{"kind":"CredentialProviderRequest","apiVersion":"credentialprovider.kubelet.k8s.io/v1","image":"` + image + `"}`
		err := provideCredentials(l.Root, Env{Stdin: strings.NewReader(request), Stdout: &out, Now: l.Now})

		return out.String(), err
	}

	got, err := ask(privateHost + "/mirror/app:v1")
	if err != nil {
		t.Fatal(err)
	}
	want := `{"apiVersion":"credentialprovider.kubelet.k8s.io/v1","kind":"CredentialProviderResponse","cacheKeyType":"Registry",` +
		`"cacheDuration":"10m0s","auth":{"` + privateHost + `":{"username":"AWS","password":"` + secretToken + `"}}}` + "\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}

	if out, err := ask("registry.example.com/app:v1"); err == nil || out != "" {
		t.Errorf("another registry: %s, %v", out, err)
	}
	l.clock = l.clock.Add(11*time.Hour + 58*time.Minute)
	if got, err := ask(privateHost + "/x"); err != nil || !strings.Contains(got, `"cacheDuration":"2m0s"`) {
		t.Errorf("shortly before the end: %v", err)
	}
	l.clock = l.clock.Add(time.Hour)
	if out, err := ask(privateHost + "/x"); err == nil || out != "" || strings.Contains(err.Error(), secretToken) {
		t.Errorf("an old token: %s, %v", out, err)
	}

	for _, request := range []string{"", "{", `{"kind":"Pod"}`, `{"kind":"CredentialProviderRequest","apiVersion":"v0"}`} {
		var out bytes.Buffer
		err := provideCredentials(l.Root, Env{Stdin: strings.NewReader(request), Stdout: &out, Now: l.Now})
		if err == nil || out.Len() > 0 {
			t.Errorf("request %q: %s, %v", request, &out, err)
		}
	}
}

// FuzzCredentialProvider: no request of the kubelet makes the provider panic or answer for another registry.
func FuzzCredentialProvider(f *testing.F) {
	f.Add(`{"kind":"CredentialProviderRequest","apiVersion":"credentialprovider.kubelet.k8s.io/v1","image":"registry.example.com/a"}`)
	f.Fuzz(func(t *testing.T, request string) {
		root := &HostFS{Dir: t.TempDir()}
		body, err := json.Marshal(registryToken{Registry: privateHost, User: "AWS", Password: secretToken, Expires: time.Now().Add(time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := root.Write(File{Path: registryTokenPath, Body: body, Mode: 0o600}); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		err = provideCredentials(root, Env{Stdin: strings.NewReader(request), Stdout: &out, Now: time.Now})
		if (err == nil) != strings.Contains(out.String(), privateHost) {
			t.Errorf("%q: %s, %v", request, &out, err)
		}
	})
}
