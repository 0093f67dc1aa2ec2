// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/status"

	"github.com/slipway-k8s/slipway/internal/lib/sleep"
)

// containerdSocket is where containerd serves the Container Runtime Interface (CRI).
const containerdSocket = "/run/containerd/containerd.sock"

// runtimeRetry is the pause between two calls of a containerd that is starting.
const runtimeRetry = 500 * time.Millisecond

// runtimeStart limits how long containerd may take to start.
const runtimeStart = 30 * time.Second

// registryCredentials are what a pull from a private registry needs. They are secret.
type registryCredentials struct{ User, Password string }

// ImageService are the images of a machine, in the kubelet's namespace of containerd.
type ImageService interface {
	// Pull pulls an image with credentials.
	Pull(ctx context.Context, ref string, credentials registryCredentials) error
	// Has reports whether the machine has an image.
	Has(ctx context.Context, ref string) (bool, error)
}

// containerdImages is the ImageService of containerd. It calls the CRI as the kubelet does. Its
// messages are encoded here: the module with all messages of the CRI would add thousands of lines
// to the agent for six fields. The numbers of fields are those of
// https://github.com/kubernetes/cri-api/blob/master/pkg/apis/runtime/v1/api.proto.
type containerdImages struct{ socket string }

// Pull implements ImageService.
func (c containerdImages) Pull(
	ctx context.Context,
	ref string,
	credentials registryCredentials,
) error {
	image := appendText(nil, 1, ref)                 // ImageSpec.image
	auth := appendText(nil, 1, credentials.User)     // AuthConfig.username
	auth = appendText(auth, 2, credentials.Password) // AuthConfig.password
	request := appendText(nil, 1, string(image))     // PullImageRequest.image
	request = appendText(request, 2, string(auth))   // PullImageRequest.auth
	if _, err := c.call(ctx, "PullImage", request); err != nil {
		return fmt.Errorf("pull image %s: %w", ref, err)
	}

	return nil
}

// Has implements ImageService.
func (c containerdImages) Has(ctx context.Context, ref string) (bool, error) {
	spec := appendText(nil, 1, ref)             // ImageSpec.image
	request := appendText(nil, 1, string(spec)) // ImageStatusRequest.image
	answer, err := c.call(ctx, "ImageStatus", request)
	if err != nil {
		return false, fmt.Errorf("look for image %s: %w", ref, err)
	}

	const image = 1<<3 | lengthDelimited // ImageStatusResponse.image: absent if there is none

	return len(answer) > 0 && answer[0] == image, nil
}

// call makes a call of the CRI's image service. It waits for a containerd that is starting.
func (c containerdImages) call(
	ctx context.Context,
	method string,
	request message,
) (message, error) {
	connection, err := grpc.NewClient(
		"unix://"+c.socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()), // root's socket
	)
	if err != nil {
		return nil, fmt.Errorf("connect to containerd at %s: %w", c.socket, err)
	}

	defer func() { _ = connection.Close() }()
	starting, cancel := context.WithTimeout(ctx, runtimeStart)
	defer cancel()

	for {
		var answer message
		err := connection.Invoke(
			ctx,
			"/runtime.v1.ImageService/"+method,
			request,
			&answer,
			grpc.ForceCodec(messageCodec{}),
		)
		if status.Code(err) != codes.Unavailable {
			return answer, err
		}

		if sleep.For(starting, runtimeRetry) != nil {
			return nil, fmt.Errorf("containerd does not answer: %w", err)
		}
	}
}

// message is an encoded message of protocol buffers.
type message []byte

// messageCodec passes messages on as they are.
type messageCodec struct{}

var _ encoding.Codec = messageCodec{}

// Marshal implements encoding.Codec.
func (messageCodec) Marshal(v any) ([]byte, error) {
	m, ok := v.(message)
	if !ok {
		return nil, fmt.Errorf("encode a %T: it is no message", v)
	}

	return m, nil
}

// Unmarshal implements encoding.Codec.
func (messageCodec) Unmarshal(data []byte, v any) error {
	m, ok := v.(*message)
	if !ok {
		return errors.New("decode a message into something else")
	}

	*m = append(message(nil), data...)

	return nil
}

// Name implements encoding.Codec: the encoding that the CRI uses.
func (messageCodec) Name() string { return "proto" }

// lengthDelimited is the wire type of texts and of messages in a message:
// https://protobuf.dev/programming-guides/encoding/
const lengthDelimited = 2

// appendText appends a field with a text, or with an encoded message, to a message.
func appendText(m message, field uint64, text string) message {
	m = binary.AppendUvarint(m, field<<3|lengthDelimited)
	m = binary.AppendUvarint(m, uint64(len(text)))

	return append(m, text...)
}
