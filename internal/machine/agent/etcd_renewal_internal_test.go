// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
)

// served is one of the endpoints of etcd that have a certificate of the machine.
type served struct {
	// url of the endpoint.
	url string
	// path of the certificate that it serves, without the ending, and ca of the CA of clients and servers there.
	path, ca string
}

// certificate returns the certificate that an endpoint serves to a new connection, which must be valid, and that in its file.
func (r *realMember) certificate(s served) (shown, file []byte) {
	r.Helper()
	a := r.agent
	leaf := pki.Leaf{
		CN:     "client",
		DNS:    []string{r.backup.member.slot.Host},
		Usages: []pki.Usage{pki.ClientUsage},
		TTL:    LeafTTL,
	}
	pair, err := newCertificateSource(a.bundle, s.ca, leaf, time.Now)()
	if err != nil {
		r.Fatal(err)
	}

	roots := x509.NewCertPool()
	public, err := a.bundle.PublicPart()
	if err != nil || !roots.AppendCertsFromPEM([]byte(public.CAs[s.ca])) {
		r.Fatalf("the CA %s: %v", s.ca, err)
	}

	_, address, _ := strings.Cut(s.url, "://")
	c, err := (&tls.Dialer{Config: &tls.Config{
		MinVersion:   tls.VersionTLS13,
		RootCAs:      roots,
		ServerName:   r.backup.member.slot.Host,
		Certificates: []tls.Certificate{*pair},
	}}).DialContext(r.Context(), "tcp", address)
	if err != nil {
		r.Fatalf("%s: %v", s.path, err)
	}

	defer func() { _ = c.Close() }()
	body, err := os.ReadFile(a.Root.Path(s.path + ".crt"))
	if err != nil {
		r.Fatal(err)
	}

	certs, err := pki.ParseCerts(body)
	if err != nil {
		r.Fatal(err)
	}

	return c.(*tls.Conn).ConnectionState().PeerCertificates[0].Raw, certs[0].Raw
}

// checkRunning returns an error if etcd's process has ended. Nothing starts it again.
func (r *realMember) checkRunning() error {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", r.process.Pid))
	if err != nil {
		return err
	}

	if strings.Contains(string(stat), ") Z ") {
		return errors.New("etcd has ended")
	}

	return nil
}

// TestRealRenewal: the agent renews the certificates of etcd in their files. A new connection gets the new ones from the process that
// runs, and the connection of a client from before works on.
func TestRealRenewal(t *testing.T) {
	r := newRealMember(t)
	all := []served{
		{r.backup.url, etcd.PKIDir + "/server", pki.EtcdClientCA},
		{r.peerURL, etcd.PKIDir + "/peer", pki.EtcdPeerCA},
	}

	// As the agent issued them five days ago.
	for _, s := range all {
		if err := os.Remove(r.agent.Root.Path(s.path + ".crt")); err != nil {
			t.Fatal(err)
		}
	}

	r.agent.Now = func() time.Time { return time.Now().Add(-5 * 24 * time.Hour) }
	if err := r.agent.renewCertificates(); err != nil {
		t.Fatal(err)
	}

	former := map[string][]byte{}
	for _, s := range all {
		shown, file := r.certificate(s)
		if former[s.path] = file; !bytes.Equal(shown, file) {
			t.Fatalf("%s: etcd does not serve the certificate of five days ago", s.path)
		}
	}

	if _, err := r.client.Put(t.Context(), "before", "x"); err != nil {
		t.Fatal(err)
	}

	r.agent.Now = time.Now
	changed, err := r.agent.writeControlPlane()
	if err != nil || len(changed) > 0 {
		t.Errorf("the renewal restarts %v, %v", changed, err)
	}

	for _, s := range all {
		shown, file := r.certificate(s)
		if bytes.Equal(file, former[s.path]) {
			t.Errorf("%s was not renewed", s.path)
		}

		if !bytes.Equal(shown, file) {
			t.Errorf("%s: etcd does not serve the new certificate", s.path)
		}
	}

	if _, err := r.client.Put(t.Context(), "after", "x"); err != nil {
		t.Errorf("the client of before: %v", err)
	}

	if err := r.checkRunning(); err != nil {
		t.Error(err)
	}
}
