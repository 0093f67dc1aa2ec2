// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// launchSerialFile has the highest serial of the launches that this machine has seen.
const launchSerialFile = "/var/lib/slipway/launches-serial"

// launchList reads the signed list of what machines of Karpenter may run. It may not be used
// concurrently.
type launchList struct {
	cluster  string
	ca       string // certificates of the Kubernetes CA, PEM
	url      string // of the list; empty if there is none
	changing ChangingReader
	root     *HostFS

	etag string
	list node.Launches
}

// newLaunchList returns the list of an agent with its document of now.
func newLaunchList(a *Agent) *launchList {
	url, err := node.SiblingURL(a.Boot.Document.URL, a.doc.Cluster, node.LaunchesKey(a.doc.Cluster))
	if err != nil || a.Changing == nil {
		url = "" // a document from elsewhere has no list
	}

	return &launchList{
		cluster:  a.doc.Cluster,
		ca:       a.doc.Trust.KubernetesCA,
		url:      url,
		changing: a.Changing,
		root:     a.Root,
	}
}

// read returns the list, which is read and verified if it has changed. Without a list no group has
// launches.
func (l *launchList) read(ctx context.Context) (node.Launches, error) {
	if l.url == "" {
		return node.Launches{}, nil
	}

	ctx, cancel := context.WithTimeout(ctx, revisionTimeout)
	defer cancel()
	body, etag, err := l.changing.ReadIfChanged(ctx, l.url, l.etag)
	if errors.Is(err, store.ErrNotFound) {
		l.etag = ""
		l.list = node.Launches{}

		return node.Launches{}, nil
	}

	if err != nil || body == nil {
		return l.list, err
	}

	list, err := node.VerifyLaunches(body, l.ca, l.cluster)
	if err != nil {
		return node.Launches{}, err
	}

	if err := l.keepSerial(list.Serial); err != nil {
		return node.Launches{}, err
	}

	l.etag = etag
	l.list = list

	return l.list, nil
}

// keepSerial fails if this machine has seen a list with a higher serial: somebody has restored an
// earlier one.
func (l *launchList) keepSerial(serial int64) error {
	seen := int64(0)
	if l.root.Exists(launchSerialFile) {
		text, err := l.root.Read(launchSerialFile)
		if err != nil {
			return err
		}

		if seen, err = strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err != nil {
			return fmt.Errorf("parse %s: %w", launchSerialFile, err)
		}
	}

	if serial < seen {
		return fmt.Errorf("%s has serial %d, but this machine has seen %d: somebody has restored an earlier list",
			l.url, serial, seen)
	}

	if serial == seen {
		return nil
	}

	_, err := l.root.Write(File{
		Path:    launchSerialFile,
		Body:    []byte(strconv.FormatInt(serial, 10) + "\n"),
		Mode:    0o600,
		Durable: true,
	})

	return err
}
