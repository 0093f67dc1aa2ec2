// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecr"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/slipway-k8s/slipway/internal/lib/asset/assettest"
	"github.com/slipway-k8s/slipway/internal/lib/ecrlogin"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

const regionHost = regiontest.AccountID + ".dkr.ecr.us-east-1.amazonaws.com"

// layersHost is where a registry of Amazon ECR sends clients for layers.
const layersHost = "prod-us-east-1-starport-layer-bucket.s3.us-east-1.amazonaws.com"

// serveAs serves a region under a host name of AWS at an address of this computer, as the resolver of a VPC would lead there.
// Redirects to S3 lead to layers.
func serveAs(t *testing.T, region regiontest.Region, address, host, layers string) string {
	t.Helper()
	listener, err := net.Listen("tcp", address+":0")
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Host = host
		recorded := httptest.NewRecorder()
		region.Handler().ServeHTTP(recorded, r)
		maps.Copy(w.Header(), recorded.Header())
		if at := w.Header().Get("Location"); at != "" {
			w.Header().Set("Location", strings.Replace(at, layersHost, layers, 1))
		}
		w.WriteHeader(recorded.Code)
		_, _ = w.Write(recorded.Body.Bytes())
	}))
	_ = server.Listener.Close()
	server.Listener = listener
	server.Start()
	t.Cleanup(server.Close)

	return strings.TrimPrefix(server.URL, "http://")
}

// testImage returns an image that containerd can unpack.
func testImage(t *testing.T) v1.Image {
	t.Helper()
	layer, err := random.Layer(512, types.OCILayer)
	if err != nil {
		t.Fatal(err)
	}
	image, err := mutate.AppendLayers(mutate.MediaType(empty.Image, types.OCIManifestSchema1), layer)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config.Architecture = "amd64"
	config.OS = "linux"
	image, err = mutate.ConfigFile(mutate.ConfigMediaType(image, types.OCIConfigJSON), config)
	if err != nil {
		t.Fatal(err)
	}

	return image
}

// startContainerd runs a containerd with its own directories, whose registry is at an address, and returns its socket.
func startContainerd(t *testing.T, registry string) (socket, log string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("SKIPPED: containerd needs root")
	}
	program := assettest.Program(t, "containerd", "bin/containerd")
	dir := t.TempDir()
	hosts := filepath.Join(dir, "certs.d", regionHost)
	if err := os.MkdirAll(hosts, 0o755); err != nil {
		t.Fatal(err)
	}
	file := "server = \"http://" + registry + "\"\n"
	if err := os.WriteFile(filepath.Join(hosts, "hosts.toml"), []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}

	short, err := os.MkdirTemp("", "cri") //nolint:usetesting // the path of a socket is limited to 108 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(short) })
	socket = filepath.Join(short, "c.sock")
	config := strings.NewReplacer(
		"/var/lib/containerd", filepath.Join(dir, "root"), "/run/containerd", filepath.Join(dir, "state"),
		"/etc/containerd", dir,
	).Replace(kube.ContainerdConfig("pause")) + "\n[grpc]\n  address = \"" + socket + "\"\n[ttrpc]\n  address = \"" + socket + ".ttrpc\"\n"
	path := filepath.Join(dir, "config.toml")
	for file, body := range map[string][]byte{path: []byte(config), filepath.Join(dir, "runtime-spec.json"): kube.RuntimeSpec()} {
		if err := os.WriteFile(file, body, 0o600); err != nil {
			t.Fatal(err)
		}
	}

	log = filepath.Join(dir, "log")
	output, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, "--config", path, "--log-level", "debug")
	cmd.Stdout = output
	cmd.Stderr = output
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Wait()
		_ = output.Close()
	})

	return socket, log
}

// TestPrivateImagesArePulled: the agent has containerd pull an image from a registry that is as strict as Amazon ECR: it
// requires a token, and sends clients to S3 for layers, which refuses the token. Without credentials there is no image, and
// the token is not in containerd's log.
func TestPrivateImagesArePulled(t *testing.T) {
	region := regiontest.Start(t)
	api := ecr.NewFromConfig(region.AWSConfig())
	if _, err := api.CreateRepository(t.Context(), &ecr.CreateRepositoryInput{RepositoryName: aws.String("mirror/pause")}); err != nil {
		t.Fatal(err)
	}
	token, err := ecrlogin.GetToken(t.Context(), api)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := name.ParseReference(regionHost + "/mirror/pause:v1")
	if err != nil {
		t.Fatal(err)
	}
	image := testImage(t)
	login := authn.FromConfig(authn.AuthConfig{Username: token.User, Password: token.Password})
	transport := regiontest.HostNames{Region: region}
	if err := remote.Write(ref, image, remote.WithTransport(transport), remote.WithAuth(login)); err != nil {
		t.Fatal(err)
	}
	digest, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	pinned := regionHost + "/mirror/pause@" + digest.String()

	layers := serveAs(t, region, "127.0.0.2", layersHost, "")
	socket, log := startContainerd(t, serveAs(t, region, "127.0.0.1", regionHost, layers))
	images := containerdImages{socket: socket}
	has := func(want bool) {
		t.Helper()
		if got, err := images.Has(t.Context(), pinned); err != nil || got != want {
			text, _ := os.ReadFile(log)
			t.Fatalf("containerd has the image: %v, %v, want %v\n…%s", got, err, want, text[max(0, len(text)-6000):])
		}
	}

	has(false)
	if err := images.Pull(t.Context(), pinned, registryCredentials{}); err == nil {
		t.Error("the image was pulled without credentials")
	}
	if err := images.Pull(t.Context(), pinned, registryCredentials{User: token.User, Password: "x"}); err == nil || strings.Contains(err.Error(), token.Password) {
		t.Errorf("with another token: %v", err)
	}
	has(false)
	if err := images.Pull(t.Context(), pinned, registryCredentials{User: token.User, Password: token.Password}); err != nil {
		t.Error(err)
	}
	has(true)

	text, err := os.ReadFile(log)
	if err != nil || len(text) == 0 || strings.Contains(string(text), token.Password) {
		t.Errorf("the token is in containerd's log, or there is none: %v", err)
	}
}
