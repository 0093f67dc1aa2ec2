// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"archive/tar"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// sshKeyPair is a key pair for the machines of a cluster. Without ssh on this computer it is empty.
type sshKeyPair struct{ file, public string }

// createSSHKey returns a new key pair.
func (e *environment) createSSHKey() sshKeyPair {
	e.t.Helper()
	if _, err := exec.LookPath("ssh"); err != nil {
		e.t.Log("this computer has no ssh: shells are not tested")
		return sshKeyPair{}
	}
	pair := sshKeyPair{file: filepath.Join(e.t.TempDir(), "id_ed25519")}
	if r := e.runProgram("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "e2e", "-f", pair.file); r.code != 0 {
		e.t.Fatal(r.err)
	}
	body, err := os.ReadFile(pair.file + ".pub")
	if err != nil {
		e.t.Fatal(err)
	}
	pair.public = strings.TrimSpace(string(body))
	return pair
}

// checkShell logs in to a machine, whose address only the proxy command of the region reaches.
func (e *environment) checkShell(id string, pair sshKeyPair) {
	e.t.Helper()
	if pair.file == "" {
		return
	}
	e.t.Cleanup(func() { _ = exec.Command("ssh-keygen", "-R", id).Run() }) // ssh reads no other file of known hosts
	begin := time.Now()
	out := e.runSlipway("ssh", id, "--name", clusterName, "--identity", pair.file, "--", "id", "-un;", "sudo", "systemctl", "is-active", "kubelet;", "hostname")
	host := e.mustRunInMachine(id, "hostname")
	if want := "admin\nactive\n" + host + "\n"; out != want {
		e.t.Errorf("a shell on %s prints %q, want %q", id, out, want)
	}
	e.t.Logf("COUNT a command on a machine by ssh: %s", time.Since(begin).Round(100*time.Millisecond))
	if r := e.runProgram(e.slipway, "ssh", "control-plane-a", "--name", clusterName, "--identity", pair.file, "--", "exit 7"); r.code != 7 {
		e.t.Errorf("the exit status of the command is %d, want 7: %s", r.code, r.err)
	}
	other := e.createSSHKey()
	if r := e.runProgram(e.slipway, "ssh", id, "--name", clusterName, "--identity", other.file, "--", "true"); r.code == 0 {
		e.t.Error("a key that is not that of the cluster logs in")
	}
}

// checkLogs reads the logs of containers, of a unit, of a machine and its console.
func (e *environment) checkLogs(id string) {
	e.t.Helper()
	for _, c := range []struct {
		want string
		args []string
	}{
		{".go:", []string{"kube-apiserver", "--tail", "3"}},
		{"etcd", []string{"etcd", "--tail", "3"}},
		{"kubelet", []string{"kubelet", "--machine", id, "--tail", "3"}},
		{"slipway-node", []string{id, "--since", "10m"}},
		{"slipway-node: {", []string{id, "--console"}},
	} {
		if out := e.runSlipway(append([]string{"logs", "--name", clusterName}, c.args...)...); !strings.Contains(out, c.want) {
			e.t.Errorf("logs %s: no %q in\n%s", strings.Join(c.args, " "), c.want, clipLog(out))
		}
	}
}

// checkSupportBundle collects a bundle and looks in it for every secret of the machine, of the cluster and of a
// program on the console.
func (e *environment) checkSupportBundle(id string) {
	e.t.Helper()
	canaries := map[string]string{"secret of Kubernetes": "canary-of-a-secret-7f3a", "console": "canary-of-the-console-91bd", "journal": "canary-of-a-journal-40cc"}
	e.kubectl("-n", "kube-system", "create", "secret", "generic", "canary", "--from-literal=password="+canaries["secret of Kubernetes"])
	e.mustRunInMachine(id, "echo 'aws_secret_access_key="+canaries["console"]+"' >/dev/console")
	e.mustRunInMachine(id, "systemd-run --quiet --wait --unit=canary --property=SyslogIdentifier=kubelet /bin/echo --token="+canaries["journal"])
	for line := range strings.Lines(e.mustRunInMachine(id, "cat /run/slipway/pki/*.key /run/slipway/kube-*/*.key /run/slipway/etcd-pki/*.key /run/slipway/config/*")) {
		if word := longestWord(line); len(word) >= 40 {
			canaries["secret on the machine "+word[:6]] = word
		}
	}
	if len(canaries) < 10 {
		e.t.Fatalf("only %d secrets to look for", len(canaries))
	}
	file := filepath.Join(e.t.TempDir(), "bundle.tar.gz")
	e.runSlipway("support-bundle", clusterName, "--out", file)
	names := e.readArchive(file, func(name, body string) {
		for what, text := range canaries {
			if strings.Contains(body, text) || strings.Contains(body, base64.StdEncoding.EncodeToString([]byte(text))) {
				e.t.Errorf("%s contains the %s", name, what)
			}
		}
		if name == "health.json" && !strings.Contains(body, `"valid": true`) && !strings.Contains(body, `"valid":true`) {
			e.t.Errorf("health.json: %s", clipLog(body))
		}
	})
	for _, want := range []string{"index.html", "manifests/", "machines/" + id + "/", "etcd/members.json", "kubernetes/", "aws/", "health.json"} {
		if !strings.Contains(names, "\n"+want) {
			e.t.Errorf("the bundle has no %s:\n%s", want, names)
		}
	}
	e.t.Logf("COUNT secrets that are not in a support bundle of %d files: %d", strings.Count(names, "\n")-1, len(canaries))
}

// longestWord returns the longest word of a line: in files of keys that is the secret.
func longestWord(line string) (longest string) {
	for word := range strings.FieldsSeq(line) {
		if word = strings.Trim(word, `"',`); len(word) > len(longest) && !strings.HasPrefix(word, "/") {
			longest = word
		}
	}
	return longest
}

// readArchive calls read with each file of a bundle, and returns their names: one a line, after a first empty one. The
// names are relative to the archive's only folder.
func (e *environment) readArchive(file string, read func(name, body string)) (names string) {
	e.t.Helper()
	f, err := os.Open(file)
	if err != nil {
		e.t.Fatal(err)
	}
	defer f.Close()
	unzipped, err := gzip.NewReader(f)
	if err != nil {
		e.t.Fatal(err)
	}
	archive := tar.NewReader(unzipped)
	names = "\n"
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return names
		}
		if err != nil {
			e.t.Fatal(err)
		}
		body, err := io.ReadAll(archive)
		if err != nil {
			e.t.Fatal(err)
		}
		name := header.Name
		if _, inner, ok := strings.Cut(name, "/"); ok && strings.HasPrefix(name, "slipway-support") {
			name = inner
		}
		names += name + "\n"
		read(name, string(body))
	}
}
